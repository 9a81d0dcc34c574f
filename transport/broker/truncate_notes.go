package broker

import (
	"context"
	"fmt"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// What an earlier call has begun stands in the Overrides, in place of a topic's own
// settings: "cut-3" has the offset that was asked for of partition 3, that from which it
// goes, and the leader epoch in which we cut it. What is written afterwards has a later
// one. While we have not taken a partition over, the epoch is the largest: nothing can be
// later.

func noteKey(partition int32) string { return fmt.Sprint("cut-", partition) }

// note is one that was stored.
type note struct {
	offset, at int64
	epoch      int32
}

func (n note) text() *string {
	s := fmt.Sprintf("%d at %d in epoch %d", n.offset, n.at, n.epoch)
	return &s
}

// noted finds a partition's; ok is false when there is none.
func noted(own Own, partition int32) (n note, ok bool, err error) {
	text := own[noteKey(partition)]
	if text == nil {
		return note{}, false, nil
	}
	if _, err := fmt.Sscanf(*text, "%d at %d in epoch %d", &n.offset, &n.at, &n.epoch); err != nil {
		return note{}, false, fmt.Errorf("what an earlier cut has left: %q: %w", *text, err)
	}
	return n, true, nil
}

// writeNotes stores that cuts are under way, beside those that are stored already.
func writeNotes(ctx context.Context, store Overrides, plans []*cutPlan, epoch func(*cutPlan) int32) error {
	all := make(map[string]Own)
	for _, p := range plans {
		topic := p.Partition.Topic
		if all[topic] == nil {
			stored, err := store.Load(ctx, topic)
			if err != nil {
				return fmt.Errorf("loading what is under way: %w", err)
			}
			if all[topic] = stored[topic]; all[topic] == nil {
				all[topic] = make(Own)
			}
		}
		all[topic][noteKey(p.Partition.Partition)] = note{p.Offset, p.At, epoch(p)}.text()
	}
	if err := store.Save(ctx, all); err != nil {
		return fmt.Errorf("storing what is under way: %w", err)
	}
	return nil
}

// othersTopics refuses the memory of a Destination: its topics would be given back.
func othersTopics(ctx context.Context, store Overrides) error {
	topics, err := store.Topics(ctx)
	if err != nil {
		return fmt.Errorf("loading what is under way: %w", err)
	}
	stored, err := store.Load(ctx, topics...)
	if err != nil {
		return fmt.Errorf("loading what is under way: %w", err)
	}
	for topic, own := range stored {
		for key := range own {
			if !strings.HasPrefix(key, "cut-") {
				return fmt.Errorf("%w: topic %s is in the hands of a mirror: another memory is needed here than there", cluster.ErrActive, topic)
			}
		}
	}
	return nil
}

// cutBefore: an earlier call has made this cut if what stands there by now, if anything
// does, was written later.
func cutBefore(n note, offset int64, there glimpse) bool {
	return n.offset == offset && there.some && there.epoch > n.epoch
}
