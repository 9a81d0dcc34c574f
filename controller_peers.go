package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// peers is what a mirror of a Controller asks before it aligns a partition
// ([Options.Positions]). All mirrors of one store answer: those into its source tell
// where a failback goes on, those into its destination claim their topics.
type peers struct {
	r      *controlled
	m      *Mirror
	beyond coordinator.Positions // asked besides; nil where nobody is
}

// Positions answers for the mirror's source. Before, it sees to it that the clusters'
// ids are stored, and that partitions that belong to another mirror fail: it returns
// only when that is written, so that nothing comes of their alignment.
func (p *peers) Positions(ctx context.Context, source string, ps []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	def, err := p.r.pin(ctx, p.m)
	if err != nil {
		return nil, err
	}
	all, err := p.r.c.store.Definitions(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.refuseClaimed(ctx, def, all, ps); err != nil {
		return nil, err
	}
	at := positionsAt{store: p.r.c.store, defined: all}
	answers, err := at.of(ctx, def.SourceID, source, ps)
	if err != nil {
		return nil, err
	}
	if p.beyond != nil {
		more, err := p.beyond.Positions(ctx, source, ps)
		if err != nil {
			return nil, fmt.Errorf("state of mirrors into the source: %w", err)
		}
		for i := range answers {
			answers[i] = both(answers[i], more[i])
		}
	}
	return answers, at.chains(ctx, ps, answers)
}

// both is what two stores come to of which each knows some of the mirrors into a cluster.
func both(a, b coordinator.PositionAnswer) coordinator.PositionAnswer {
	if b.Found && (!a.Found || b.Position.Offset > a.Position.Offset) {
		a.Found, a.Position, a.TopicID = true, b.Position, b.TopicID
	}
	a.Active = cmp.Or(a.Active, b.Active)
	for _, id := range b.Sources {
		if !slices.Contains(a.Sources, id) {
			a.Sources = append(slices.Clip(a.Sources), id)
		}
	}
	return a
}

// refuseClaimed fails the partitions whose topic another mirror into the same cluster
// is at work on, unless this one has been at work there all along.
func (p *peers) refuseClaimed(ctx context.Context, def coordinator.Definition, all []coordinator.Definition, ps []cluster.Partition) error {
	claims, err := p.r.c.claims(ctx, def, all)
	if err != nil || len(claims) == 0 {
		return err
	}
	var acks []chan error
	for _, part := range ps {
		other, claimed := claims[part.Topic]
		if s, ok := p.m.coord.Snapshot(part); !claimed || ok && s.Aligned {
			continue
		}
		ack := make(chan error, 1)
		acks = append(acks, ack)
		p.m.coord.Post(coordinator.Event{
			Partition: part, Kind: coordinator.EventFailed, Err: claimedBy(other),
			Ack: func(err error) { ack <- err },
		})
	}
	for _, ack := range acks {
		select {
		case <-ack:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func claimedBy(other string) error { return fmt.Errorf("%w: mirror %q", ErrActive, other) }

// claims are the topics that other mirrors into the same cluster are at work on, with
// one such mirror's name. A partition that failed before its log was aligned claims
// nothing: it may be what was refused.
func (c *Controller) claims(ctx context.Context, def coordinator.Definition, all []coordinator.Definition) (map[string]string, error) {
	out := map[string]string{}
	for _, other := range all {
		if other.Name == def.Name || !sameDestination(other, def) {
			continue
		}
		records, err := c.store.Load(ctx, other.Name)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if !over(r) && (r.State != coordinator.StateFailed || r.Aligned) {
				out[r.Partition.Topic] = other.Name
			}
		}
	}
	return out, nil
}

// sameDestination compares cluster ids, and settings as long as an id is not known.
func sameDestination(a, b coordinator.Definition) bool {
	if a.DestinationID != "" && b.DestinationID != "" {
		return a.DestinationID == b.DestinationID
	}
	return maps.Equal(a.Destination, b.Destination)
}

// positionsAt answers for any cluster that mirrors of one store lead to.
type positionsAt struct {
	store   Store
	defined []coordinator.Definition
}

// of is coordinator.Positions of the mirrors into the cluster at.
func (a positionsAt) of(ctx context.Context, at, source string, ps []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	records := map[string][]coordinator.Record{}
	for _, d := range a.defined {
		if d.DestinationID != at {
			continue
		}
		got, err := a.store.Load(ctx, d.Name)
		if err != nil {
			return nil, err
		}
		for i := range got {
			if len(got[i].Sources) == 0 && d.SourceID != "" {
				got[i].Sources = []string{d.SourceID} // written before its clusters had answered
			}
		}
		records[d.Name] = got
	}
	return coordinator.AnswerPositions(records, source, ps), nil
}

// chains follows where topics come from to the end: a mirror further up may have
// begun after the one that has it as its source.
func (a positionsAt) chains(ctx context.Context, ps []cluster.Partition, answers []coordinator.PositionAnswer) error {
	into := map[string][]coordinator.PositionAnswer{} // by cluster, in the order of ps
	for i := range answers {
		for k := 0; k < len(answers[i].Sources); k++ {
			at := answers[i].Sources[k]
			if into[at] == nil {
				var err error
				if into[at], err = a.of(ctx, at, "", ps); err != nil {
					return err
				}
			}
			for _, id := range into[at][i].Sources {
				if !slices.Contains(answers[i].Sources, id) {
					answers[i].Sources = append(slices.Clip(answers[i].Sources), id)
				}
			}
		}
	}
	return nil
}
