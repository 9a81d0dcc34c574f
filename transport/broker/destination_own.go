package broker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
)

// ownTopics are the Overrides, and in memory which topics they have: those are ours.
// A topic is ours from before its settings are stored until they are forgotten, which
// is around all that is done to its partitions. Other processes may store and forget
// topics as well: recall looks.
type ownTopics struct {
	Overrides
	mu     sync.RWMutex
	all    map[string]bool
	saving int // calls of Save that are under way
	writes int // calls of Save and Delete that have ended

	holding bool // forgetting waits
	held    []string
}

func newOwnTopics(o Overrides) *ownTopics {
	return &ownTopics{Overrides: o, all: make(map[string]bool)}
}

// recall reads which topics are stored. What is being stored by us meanwhile is ours.
func (o *ownTopics) recall(ctx context.Context) error {
	o.mu.RLock()
	before := o.writes
	o.mu.RUnlock()
	names, err := o.Topics(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.saving == 0 && o.writes == before {
		clear(o.all)
	}
	for _, n := range names {
		o.all[n] = true
	}
	return nil
}

// names are all of them.
func (o *ownTopics) names() []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Collect(maps.Keys(o.all))
}

func (o *ownTopics) has(topic string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.all[topic]
}

// Save is of Overrides.
func (o *ownTopics) Save(ctx context.Context, all map[string]Own) error {
	o.mu.Lock()
	before := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(n string) bool { return o.all[n] })
	for _, n := range before {
		o.all[n] = true
	}
	o.saving++
	o.mu.Unlock()
	err := o.Overrides.Save(ctx, all)
	o.mu.Lock()
	o.saving--
	o.writes++
	o.mu.Unlock()
	if err != nil { // it may be stored all the same, which load finds then
		o.drop(before)
	}
	return err
}

// Delete is of Overrides.
func (o *ownTopics) Delete(ctx context.Context, topics []string) error {
	o.mu.Lock()
	if o.holding {
		o.held = append(o.held, topics...)
		o.mu.Unlock()
		return nil
	}
	o.mu.Unlock()
	err := o.Overrides.Delete(ctx, topics)
	if err == nil {
		o.drop(topics)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes++
	return err
}

// hold has topics stay ours that are forgotten, until free.
func (o *ownTopics) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding = true
}

// free ends hold, and gives what was to be forgotten meanwhile.
func (o *ownTopics) free() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.held
	o.holding, o.held = false, nil
	return held
}

func (o *ownTopics) drop(topics []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range topics {
		delete(o.all, n)
	}
}

const (
	// recallEvery is how often it is looked for what other processes store and forget.
	recallEvery = 10 * time.Second
	// recalling bounds a look: the store may be led by ourselves.
	recalling = time.Second
)

// recall looks which topics are ours by now, where other processes may have stored some.
func (d *Destination) recall(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, recalling)
	defer cancel()
	err := d.own.recall(bounded)
	if err != nil && ctx.Err() == nil {
		d.cfg.Logger.Warn("not known whether there are other topics of ours", "error", err)
	}
	return err
}

// strange are partitions of a delta that have us for a leader, and are not known to be
// ours.
func (d *Destination) strange(image metalog.Image, delta metalog.Delta) []metalog.PartitionID {
	var out []metalog.PartitionID
	look := func(id metalog.PartitionID) {
		if p, ok := image.Partition(id); ok && p.Leader == d.m.Self().Broker && !d.own.has(topicName(image, id)) {
			out = append(out, id)
		}
	}
	for id := range delta.Partitions {
		look(id)
	}
	if delta.All {
		for id := range image.Partitions() {
			look(id)
		}
	}
	return out
}
