package broker

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// ownTopics are the Overrides, and in memory which topics they have: those are ours.
// A topic is ours from before its settings are stored until they are forgotten, which
// is around all that is done to its partitions.
type ownTopics struct {
	Overrides
	mu  sync.RWMutex
	all map[string]bool
}

func newOwnTopics(o Overrides) *ownTopics {
	return &ownTopics{Overrides: o, all: make(map[string]bool)}
}

// load reads which topics are stored.
func (o *ownTopics) load(ctx context.Context) error {
	names, err := o.Topics(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range names {
		o.all[n] = true
	}
	return nil
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
	o.mu.Unlock()
	err := o.Overrides.Save(ctx, all)
	if err != nil { // it may be stored all the same, which load finds then
		o.drop(before)
	}
	return err
}

// Delete is of Overrides.
func (o *ownTopics) Delete(ctx context.Context, topics []string) error {
	err := o.Overrides.Delete(ctx, topics)
	if err == nil {
		o.drop(topics)
	}
	return err
}

func (o *ownTopics) drop(topics []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range topics {
		delete(o.all, n)
	}
}
