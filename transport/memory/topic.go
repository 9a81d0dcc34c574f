package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/topics"
)

// ErrReadOnly: clients do not write into a topic that is being mirrored, nor change
// or delete it (C2.15).
var ErrReadOnly = errors.New("mirror topic is read-only")

type topic struct {
	name       string
	id         cluster.TopicID
	partitions []*partition
	configs    []cluster.TopicConfig // sorted by name
	factor     int
}

// readOnly refuses what clients do to a mirror topic.
func (t *topic) readOnly(c *Cluster) error {
	if !c.traits.ReadOnly {
		return nil
	}
	for _, p := range t.partitions {
		if p.mirrored() {
			return fmt.Errorf("%v: %w", p.id, ErrReadOnly)
		}
	}
	return nil
}

func (t *topic) config(name string) string {
	for _, c := range t.configs {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

// internal are Kafka's own topics.
func internal(name string) bool { return name == "__consumer_offsets" || name == "__transaction_state" }

// sorted are the topics by name.
func (c *Cluster) sorted() []*topic {
	all := make([]*topic, 0, len(c.topics))
	for _, t := range c.topics {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *topic) int { return strings.Compare(a.name, b.name) })
	return all
}

// each visits all partitions in their order.
func (c *Cluster) each(visit func(*partition)) {
	for _, t := range c.sorted() {
		for _, p := range t.partitions {
			visit(p)
		}
	}
}

// CreateTopic creates a topic; a replication factor of -1 or 0 is the default.
// Partition n of the k-th topic is led by broker (k+n) modulo the brokers, plus 1,
// or the next one that runs.
func (c *Cluster) CreateTopic(t cluster.NewTopic) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.createTopic(t)
}

func (c *Cluster) createTopic(n cluster.NewTopic) error {
	factor := int(n.ReplicationFactor)
	if factor <= 0 {
		factor = c.options.ReplicationFactor
	}
	switch {
	case c.topics[n.Name] != nil:
		return fmt.Errorf("topic %s: %w", n.Name, cluster.ErrTopicExists)
	case n.Name == "" || n.Partitions < 1:
		return fmt.Errorf("topic %q with %d partitions: %w", n.Name, n.Partitions, cluster.ErrRefused)
	}
	t := &topic{name: n.Name, id: c.topicID(), factor: factor}
	for _, o := range n.Configs {
		if err := c.knows(o.Name); err != nil {
			return fmt.Errorf("topic %s: %w", n.Name, err)
		}
		t.set(o.Name, o.Value)
	}
	if err := c.growTopic(t, int(n.Partitions)); err != nil {
		return err
	}
	c.topics[n.Name] = t
	c.changed()
	return nil
}

// growTopic adds partitions up to n. Each replica needs a broker of its own that runs.
func (c *Cluster) growTopic(t *topic, n int) error {
	if t.factor > c.running {
		return fmt.Errorf("topic %s: %w: replication factor %d with %d brokers", t.name, cluster.ErrRefused, t.factor, c.running)
	}
	have := len(t.partitions)
	ps := make([]partition, n-have)
	rs := make([]replica, len(ps)*t.factor)
	for i := range ps {
		p := &ps[i]
		*p = partition{
			id: cluster.Partition{Topic: t.name, Partition: int32(have + i)}, topic: t,
			replicas: rs[i*t.factor : (i+1)*t.factor : (i+1)*t.factor], stretch: stretch{foreign: -1},
		}
		at := int(t.serial()) + have + i
		for k := range p.replicas {
			for !c.brokers[at%len(c.brokers)].up {
				at++
			}
			p.replicas[k] = replica{broker: int32(at%len(c.brokers)) + 1, inSync: true, cut: -1}
			at++
		}
		p.replicas[0].log.epochs.assign(0, 0)
		t.partitions = append(t.partitions, p)
	}
	return nil
}

// serial is the how manieth topic of the cluster it is.
func (t *topic) serial() byte { return t.id[15] }

func (t *topic) set(name, value string) {
	i, found := slices.BinarySearchFunc(t.configs, name, func(c cluster.TopicConfig, n string) int { return strings.Compare(c.Name, n) })
	switch {
	case found:
		t.configs[i].Value = value
	default:
		t.configs = slices.Insert(t.configs, i, cluster.TopicConfig{Name: name, Value: value})
	}
}

func (t *topic) unset(name string) {
	t.configs = slices.DeleteFunc(t.configs, func(c cluster.TopicConfig) bool { return c.Name == name })
}

// DeleteTopic deletes a topic as a client does. A mirror topic is refused. Committed
// offsets on it go too.
func (c *Cluster) DeleteTopic(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	if t == nil {
		return fmt.Errorf("topic %s: %w", name, cluster.ErrUnknownTopic)
	}
	if err := t.readOnly(c); err != nil {
		return err
	}
	c.deleteTopic(t)
	return nil
}

func (c *Cluster) deleteTopic(t *topic) {
	delete(c.topics, t.name)
	for _, g := range c.groups {
		g.offsets = slices.DeleteFunc(g.offsets, func(o cluster.Committed) bool { return o.Partition.Topic == t.name })
	}
	c.changed()
}

// CreatePartitions grows a topic to n partitions as a client does. A mirror topic
// is refused.
func (c *Cluster) CreatePartitions(name string, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	switch {
	case t == nil:
		return fmt.Errorf("topic %s: %w", name, cluster.ErrUnknownTopic)
	case n <= len(t.partitions):
		return fmt.Errorf("topic %s: %w: it has %d partitions", name, cluster.ErrRefused, len(t.partitions))
	}
	if err := t.readOnly(c); err != nil {
		return err
	}
	if err := c.growTopic(t, n); err != nil {
		return err
	}
	c.changed()
	return nil
}

// SetTopicConfig sets an override, or removes it when value is empty.
func (c *Cluster) SetTopicConfig(topic, name, value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[topic]
	if t == nil {
		return fmt.Errorf("topic %s: %w", topic, cluster.ErrUnknownTopic)
	}
	if value == "" {
		t.unset(name)
		return nil
	}
	t.set(name, value)
	return nil
}

// Topics lists all topics by name.
func (cl *Client) Topics(ctx context.Context) ([]cluster.Topic, error) {
	return call(ctx, cl, Op{Call: CallTopics, Broker: -1}, func() ([]cluster.Topic, error) {
		var out []cluster.Topic
		for _, t := range cl.c.sorted() {
			out = append(out, cluster.Topic{Name: t.name, ID: t.id, Partitions: int32(len(t.partitions)), Internal: internal(t.name)})
		}
		return out, nil
	})
}

// TopicConfigs gives the overrides of topics, each sorted by name.
func (cl *Client) TopicConfigs(ctx context.Context, names []string) ([]topics.ConfigsAnswer, error) {
	return call(ctx, cl, Op{Call: CallTopicConfigs, Broker: -1, Names: names}, func() ([]topics.ConfigsAnswer, error) {
		out := make([]topics.ConfigsAnswer, len(names))
		for i, n := range names {
			if t := cl.c.topics[n]; t != nil {
				out[i].Configs = slices.Clone(t.configs)
				for _, d := range cl.c.options.Defaults {
					if !slices.ContainsFunc(t.configs, func(o cluster.TopicConfig) bool { return o.Name == d.Name }) {
						out[i].Defaults = append(out[i].Defaults, d)
					}
				}
			} else {
				out[i].Err = fmt.Errorf("topic %s: %w", n, cluster.ErrUnknownTopic)
			}
		}
		return out, nil
	})
}

// AlterTopics changes settings of topics for a mirror: a read-only topic is no hindrance.
func (cl *Client) AlterTopics(ctx context.Context, changes []topics.Changes) []error {
	names := make([]string, len(changes))
	for i, ch := range changes {
		names[i] = ch.Topic
	}
	c := cl.c
	return callEach(ctx, cl, Op{Call: CallAlterTopics, Broker: -1, Names: names}, len(changes), func(i int) error {
		t := c.topics[changes[i].Topic]
		if t == nil {
			return fmt.Errorf("topic %s: %w", changes[i].Topic, cluster.ErrUnknownTopic)
		}
		for _, ch := range changes[i].Changes {
			if err := c.knows(ch.Name); err != nil {
				return err
			}
		}
		for _, ch := range changes[i].Changes {
			if ch.Value == nil {
				t.unset(ch.Name)
			} else {
				t.set(ch.Name, *ch.Value)
			}
		}
		return nil
	})
}

// knows refuses a setting that a cluster does not know whose settings are given.
func (c *Cluster) knows(name string) error {
	if len(c.options.Defaults) > 0 && !slices.ContainsFunc(c.options.Defaults, func(d cluster.TopicConfig) bool { return d.Name == name }) {
		return fmt.Errorf("unknown setting %s: %w", name, cluster.ErrInvalidConfig)
	}
	return nil
}

// CreateTopics creates topics for a mirror.
func (cl *Client) CreateTopics(ctx context.Context, news []cluster.NewTopic) []error {
	names := make([]string, len(news))
	for i, n := range news {
		names[i] = n.Name
	}
	return callEach(ctx, cl, Op{Call: CallCreateTopics, Broker: -1, Names: names}, len(news), func(i int) error {
		return cl.c.createTopic(news[i])
	})
}
