package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/topics"
)

// internal are the topics that brokers keep for themselves.
var internal = map[string]bool{"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true}

// Topics are the cluster's topics, as the metadata log has them: what brokers tell of
// those that were just created or grown comes later.
func (d *Destination) Topics(ctx context.Context) ([]cluster.Topic, error) {
	image, err := d.joined(ctx)
	if err != nil {
		return nil, err
	}
	var out []cluster.Topic
	for t := range image.Topics() {
		out = append(out, cluster.Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions, Internal: internal[t.Name]})
	}
	slices.SortFunc(out, func(a, b cluster.Topic) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// CreateTopics creates topics that we lead from their first moment on.
func (d *Destination) CreateTopics(ctx context.Context, wanted []cluster.NewTopic) []error {
	errs := make([]error, len(wanted))
	image, err := d.joined(ctx)
	if err != nil {
		return fill(errs, err)
	}
	var begin []cluster.Partition
	for _, t := range wanted {
		if _, ok := image.TopicNamed(t.Name); !ok {
			for n := range t.Partitions {
				begin = append(begin, cluster.Partition{Topic: t.Name, Partition: n})
			}
		}
	}
	over := d.fresh(begin)
	errs = d.control.create(ctx, wanted)
	var made []string
	for i, t := range wanted {
		if errs[i] == nil {
			made = append(made, t.Name)
		}
	}
	d.narrow(ctx, partitionsOf(d.m.log.Image(), made...))
	over()
	return errs
}

// TopicConfigs gives the settings of topics, as the brokers tell them.
func (d *Destination) TopicConfigs(ctx context.Context, names []string) ([]topics.ConfigsAnswer, error) {
	return d.cfg.Admin.TopicConfigs(ctx, names)
}

// AlterTopics changes settings of topics. Those that a topic has for being ours are kept
// apart (Overrides), and no mirror copies them.
func (d *Destination) AlterTopics(ctx context.Context, changes []topics.Changes) []error {
	return d.cfg.Admin.AlterTopics(ctx, changes)
}

// GrowTopics adds partitions that we lead to topics that are ours, and others to those
// that are not.
func (d *Destination) GrowTopics(ctx context.Context, wanted []cluster.Topic) []error {
	errs := make([]error, len(wanted))
	image, err := d.joined(ctx)
	if err != nil {
		return fill(errs, err)
	}
	var ours, others []cluster.Topic
	var at, elsewhere []int
	var begin []cluster.Partition
	for i, t := range wanted {
		if !d.own.has(t.Name) {
			others, elsewhere = append(others, t), append(elsewhere, i)
			continue
		}
		ours, at = append(ours, t), append(at, i)
		if is, ok := image.TopicNamed(t.Name); ok {
			for n := is.Partitions; n < t.Partitions; n++ {
				begin = append(begin, cluster.Partition{Topic: t.Name, Partition: n})
			}
		}
	}
	if len(ours) > 0 {
		over := d.fresh(begin)
		for k, err := range d.control.grow(ctx, ours) {
			errs[at[k]] = err
		}
		image = d.m.log.Image()
		var made []metalog.PartitionID
		for _, p := range begin {
			var id metalog.PartitionID
			if _, err := d.find(image, p, &id); err == nil {
				made = append(made, id)
			}
		}
		d.narrow(ctx, made)
		over()
	}
	if len(others) > 0 {
		for k, err := range d.cfg.Admin.GrowTopics(ctx, others) {
			errs[elsewhere[k]] = err
		}
	}
	return errs
}

// fresh says of partitions that whatever we come to lead under their names until over
// is called has an empty log.
func (d *Destination) fresh(ps []cluster.Partition) (over func()) {
	set := func(fresh bool) {
		for _, p := range ps {
			h := d.holding(p)
			h.mu.Lock()
			h.fresh = fresh
			h.mu.Unlock()
		}
	}
	set(true)
	return func() { set(false) }
}

// narrow keeps others from leading what was created. What is left of it Ends does.
func (d *Destination) narrow(ctx context.Context, ids []metalog.PartitionID) {
	if len(ids) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := failedWith(d.control.narrow(bounded, ids)); err != nil {
		d.cfg.Logger.Warn("real brokers may still lead partitions that were created", "error", err)
	}
}
