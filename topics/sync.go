package topics

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// A Syncer brings the destination's topics in step.
type Syncer struct {
	Source      Source
	Destination Sink
	// Held is asked before anything is created: the names it gives are missing at the
	// destination because the mirror itself is making them anew. They are left alone
	// and count as ready. nil: there are none.
	Held func(ctx context.Context) (map[string]bool, error)
	// Required are settings that topics are created with whatever the source says.
	Required []cluster.TopicConfig
	// Claim stores which settings of topics that are about to be created are the mirror's
	// doing. nil: nobody keeps it.
	Claim func(ctx context.Context, news map[string]Own) error
}

// A Result is what one sync found and did.
type Result struct {
	Ready   []cluster.Topic  // topics that exist on both sides: what can be mirrored
	Created []string         // among them, those that this sync created
	Bare    []string         // among these, those that have to be given the source's settings yet
	Grown   []string         // among them, those that this sync gave more partitions
	Refused map[string]error // topics that cannot be mirrored now, with the reason
	Missing []string         // literal names that the source does not have
	// There are the ids that topics of the mirror have at the destination, as far as
	// they were there before this sync.
	There map[string]cluster.TopicID
}

// Sync creates what is missing. One topic that is refused never keeps another
// from being created; the error is for what concerns all of them.
func (s Syncer) Sync(ctx context.Context, f *Filter) (Result, error) {
	source, err := s.Source.Topics(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("source topics: %w", err)
	}
	destination, err := s.Destination.Topics(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("destination topics: %w", err)
	}
	plan := Diff(source, destination, f)
	res := Result{Ready: plan.Ready, Refused: plan.Refused, Missing: plan.Missing, There: map[string]cluster.TopicID{}}
	for _, t := range destination {
		if f.Matches(t.Name) {
			res.There[t.Name] = t.ID
		}
	}
	if len(plan.Create) > 0 && s.Held != nil {
		held, err := s.Held(ctx) // after the look: it is on record before it is deleted
		if err != nil {
			return Result{}, fmt.Errorf("topics that are being made anew: %w", err)
		}
		for _, t := range plan.Create {
			if held[t.Name] {
				res.Ready = append(res.Ready, t)
			}
		}
		plan.Create = slices.DeleteFunc(plan.Create, func(t cluster.Topic) bool { return held[t.Name] })
	}
	s.grow(ctx, plan.Grow, &res)
	if len(plan.Create) == 0 {
		return res, nil
	}
	names := make([]string, len(plan.Create))
	for i, t := range plan.Create {
		names[i] = t.Name
	}
	configs, err := s.Source.TopicConfigs(ctx, names)
	if err != nil { // what is there already is mirrored all the same
		configs = make([]ConfigsAnswer, len(names))
		for i := range configs {
			configs[i].Err = err
		}
	}
	s.create(ctx, plan.Create, configs, &res)
	return res, nil
}

func (s Syncer) grow(ctx context.Context, small []cluster.Topic, res *Result) {
	if len(small) == 0 {
		return
	}
	for i, err := range s.Destination.GrowTopics(ctx, small) {
		t := small[i]
		if err != nil {
			res.Refused[t.Name] = fmt.Errorf("topic %s: grow to %d partitions: %w", t.Name, t.Partitions, err)
			continue
		}
		res.Grown = append(res.Grown, t.Name)
		res.Ready = append(res.Ready, t)
	}
}
