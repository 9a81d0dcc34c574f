package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// maxPartitions bounds the partitions of one request that creates topics. The
// controller writes a record for each, and one for each setting.
const maxPartitions = 2000

// create creates topics that we lead, and returns when we do; the errors are in
// the order of the topics. Each partition has us as its preferred leader and as
// many real replicas as the topic asks for, placed as the cluster would. The
// topic has the settings of mirrored ones; its own are stored before. A topic that
// is there already has cluster.ErrTopicExists. Real brokers are still in sync:
// call narrow.
func (c *control) create(ctx context.Context, wanted []cluster.NewTopic) []error {
	errs := make([]error, len(wanted))
	if err := c.m.WaitJoined(ctx); err != nil {
		return fill(errs, fmt.Errorf("waiting to be a member: %w", err))
	}
	link := &controller{quorum: c.m.quorum}
	defer link.drop()
	image := c.m.log.Image()
	plans := make([]*plan, len(wanted))
	own := make(map[string]Own)
	for n, topic := range wanted {
		_, twice := own[topic.Name]
		if _, ok := image.TopicNamed(topic.Name); ok || twice {
			errs[n] = fmt.Errorf("topic %s: %w", topic.Name, cluster.ErrTopicExists)
			continue
		}
		plans[n] = &plan{NewTopic: topic}
		own[topic.Name] = ownOf(settings(topic.Configs))
	}
	if err := c.resolve(ctx, link, wanted, plans, errs); err != nil {
		return fill(errs, err)
	}
	lay(plans, newSpread(image, c.m.party(), newRandom()), c.m.party().Broker, errs)
	if len(own) == 0 {
		return errs
	}
	before, err := c.remember(ctx, own)
	if err != nil {
		return fill(errs, err)
	}
	if err := c.uncordoned(ctx, nil, func() error { return c.createAll(ctx, link, plans, errs) }); err != nil {
		return fill(errs, err)
	}
	c.forget(ctx, wanted, errs, before)
	c.awaitLed(ctx, plans, errs)
	return errs
}

// plan is a topic to be created, or to be given more partitions than it has;
// replicas are those of each new partition.
type plan struct {
	cluster.NewTopic
	have     int32
	replicas [][]int32
}

func fill(errs []error, err error) []error {
	for n := range errs {
		if errs[n] == nil {
			errs[n] = err
		}
	}
	return errs
}

func settings(list []cluster.TopicConfig) map[string]string {
	out := make(map[string]string, len(list))
	for _, s := range list {
		out[s.Name] = s.Value
	}
	return out
}

// remember stores topics' own settings, and gives what was stored under their names.
func (c *control) remember(ctx context.Context, own map[string]Own) (map[string]Own, error) {
	before, err := c.overrides.Load(ctx, slices.Collect(maps.Keys(own))...)
	if err != nil {
		return nil, fmt.Errorf("loading topics' own settings: %w", err)
	}
	if err := c.overrides.Save(ctx, own); err != nil {
		return nil, fmt.Errorf("storing topics' own settings: %w", err)
	}
	return before, nil
}

// forget undoes remember for topics that exist already or were refused. Where it is
// not known whether a topic was created, what was stored stays.
func (c *control) forget(ctx context.Context, wanted []cluster.NewTopic, errs []error, before map[string]Own) {
	again := make(map[string]Own)
	var gone []string
	for n, topic := range wanted {
		var code wire.Code
		if !errors.As(errs[n], &code) {
			continue
		}
		if old, ok := before[topic.Name]; ok {
			again[topic.Name] = old
		} else {
			gone = append(gone, topic.Name)
		}
	}
	err := errors.Join(c.overrides.Save(ctx, again), c.overrides.Delete(ctx, gone))
	if err != nil {
		c.m.logger.Warn("forgetting settings of topics that were not created", "error", err)
	}
}

// resolve asks for the cluster's defaults where topics leave something to them, by
// having the controller check such a topic without creating it.
func (c *control) resolve(ctx context.Context, link *controller, wanted []cluster.NewTopic, plans []*plan, errs []error) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.ValidateOnly = 5000, true
	index := make(map[string]int)
	for n, p := range plans {
		if p == nil || p.ReplicationFactor > 0 && p.Partitions > 0 {
			continue
		}
		index[p.Name] = n
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = p.Name, p.Partitions, p.ReplicationFactor
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := link.do(ctx, req)
	if err != nil {
		return fmt.Errorf("asking for the cluster's defaults: %w", err)
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		n, ok := index[t.Topic]
		if !ok {
			continue
		}
		err := saying(t.ErrorCode, t.ErrorMessage)
		if err == nil {
			err = wire.CodeError(t.ConfigErrorCode)
		}
		if err != nil || t.ReplicationFactor < 1 || t.NumPartitions < 1 {
			errs[n] = fmt.Errorf("topic %s: the cluster's defaults: %w", wanted[n].Name, orMissing(err))
			plans[n] = nil
			continue
		}
		plans[n].ReplicationFactor, plans[n].Partitions = t.ReplicationFactor, t.NumPartitions
	}
	return nil
}

func orMissing(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the controller does not tell them", cluster.ErrRefused)
	}
	return err
}

// lay gives every partition its replicas, us first.
func lay(plans []*plan, s *spread, self int32, errs []error) {
	for n, p := range plans {
		if p == nil {
			continue
		}
		for range p.Partitions {
			reals, err := s.next(int(p.ReplicationFactor))
			if err != nil {
				errs[n], plans[n] = fmt.Errorf("topic %s: %w", p.Name, err), nil
				break
			}
			p.replicas = append(p.replicas, append([]int32{self}, reals...))
		}
	}
}

// createAll sends the requests.
func (c *control) createAll(ctx context.Context, link *controller, plans []*plan, errs []error) error {
	for from := 0; from < len(plans); {
		to, size := from, 0
		for to < len(plans) && (size == 0 || plans[to] == nil || size+len(plans[to].replicas) <= maxPartitions) {
			if plans[to] != nil {
				size += len(plans[to].replicas)
			}
			to++
		}
		if err := createSome(ctx, link, plans[from:to], errs[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// createSome is one request.
func createSome(ctx context.Context, link *controller, plans []*plan, errs []error) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	index := make(map[string]int)
	for n, p := range plans {
		if p == nil {
			continue
		}
		index[p.Name] = n
		req.Topics = append(req.Topics, p.request())
	}
	if len(index) == 0 {
		return nil
	}
	resp, err := link.do(ctx, req)
	if err != nil {
		return fmt.Errorf("creating %d topics: %w", len(index), err)
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if n, ok := index[t.Topic]; ok {
			if err := saying(t.ErrorCode, t.ErrorMessage); err != nil {
				errs[n] = fmt.Errorf("topic %s: %w", t.Topic, err)
			}
		}
	}
	return nil
}

func (p *plan) request() kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = p.Name, -1, -1
	for n, replicas := range p.replicas {
		one := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		one.Partition, one.Replicas = int32(n), replicas
		t.ReplicaAssignment = append(t.ReplicaAssignment, one)
	}
	add := func(key, value string) {
		one := kmsg.NewCreateTopicsRequestTopicConfig()
		one.Name, one.Value = key, &value
		t.Configs = append(t.Configs, one)
	}
	for _, s := range p.Configs {
		if _, ok := mirrored[s.Name]; !ok {
			add(s.Name, s.Value)
		}
	}
	for _, ch := range toMirrored(nil) {
		add(ch.key, *ch.value)
	}
	return t
}

// awaitLed waits until the metadata log has what was created, and looks who leads
// the new partitions.
func (c *control) awaitLed(ctx context.Context, plans []*plan, errs []error) {
	there := func(i metalog.Image, p *plan) bool {
		t, ok := i.TopicNamed(p.Name)
		return ok && t.Partitions >= p.Partitions
	}
	image, err := c.m.log.Wait(ctx, func(i metalog.Image) bool {
		for n, p := range plans {
			if p != nil && errs[n] == nil && !there(i, p) {
				return false
			}
		}
		return true
	})
	self := c.m.Self().Broker
	for n, p := range plans {
		switch {
		case p == nil || errs[n] != nil:
			continue
		case !there(image, p):
			errs[n] = fmt.Errorf("topic %s: created, but not in the metadata log: %w", p.Name, err)
			continue
		}
		for _, id := range partitionsOf(image, p.Name) {
			if part, _ := image.Partition(id); id.Partition >= p.have && part.Leader != self {
				errs[n] = fmt.Errorf("topic %s, partition %d: %w", p.Name, id.Partition, notLeader(part))
				break
			}
		}
	}
}
