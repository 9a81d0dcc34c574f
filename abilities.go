package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// abilities are what source and destination can do beyond what every one can. They
// are looked for once; what is missing is nil, and that part idle.
type abilities struct {
	fencer    fetcher.Fencer
	raiser    fetcher.EpochRaiser
	stamper   fetcher.EpochStamper
	loser     fetcher.Loser
	lifter    fetcher.ProducerLifter
	refiller  fetcher.Refiller
	aborter   fetcher.Aborter
	guard     fetcher.ProducerGuard
	rebuilder fetcher.Rebuilder
	filler    fetcher.Filler
	positions coordinator.Positions
}

// look finds out about the two ends.
func look(source Source, destination Destination, opts Options) (a abilities) {
	a.fencer, _ = destination.(fetcher.Fencer)
	a.raiser, _ = destination.(fetcher.EpochRaiser)
	a.stamper, _ = destination.(fetcher.EpochStamper)
	a.lifter, _ = destination.(fetcher.ProducerLifter)
	a.loser, _ = destination.(fetcher.Loser)
	a.refiller, _ = destination.(fetcher.Refiller)
	a.aborter, _ = destination.(fetcher.Aborter)
	a.guard, _ = destination.(fetcher.ProducerGuard)
	a.rebuilder, _ = destination.(fetcher.Rebuilder)
	a.filler, _ = destination.(fetcher.Filler)
	if a.positions = opts.Positions; a.positions == nil {
		a.positions, _ = source.(coordinator.Positions)
	}
	return a
}

// peers asks what mirrors the other way have left at the source. A topic whose
// records come from the destination is refused, and so is one that a mirror the
// other way is at work on. The answers are in the order of the tasks.
func (m *Mirror) peers(ctx context.Context, ts []task) ([]coordinator.PositionAnswer, []error) {
	answers, errs := make([]coordinator.PositionAnswer, len(ts)), make([]error, len(ts))
	if m.can.positions == nil || len(ts) == 0 {
		return answers, errs
	}
	ps := make([]cluster.Partition, len(ts))
	for i, t := range ts {
		ps[i] = t.rec.Partition
	}
	_, destination, err := m.identity(ctx)
	var got []coordinator.PositionAnswer
	if err == nil {
		got, err = m.can.positions.Positions(ctx, destination, ps)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return answers, errs
	}
	for i := range ts {
		if err != nil {
			errs[i] = fmt.Errorf("positions at the source: %w", err)
			continue
		}
		if errs[i] = barred(got[i], destination); got[i].Active == "" {
			answers[i] = got[i]
		}
	}
	return answers, errs
}

// barred says why what mirrors the other way have left at the source forbids a mirror to
// the destination; nil when it does not.
func barred(a coordinator.PositionAnswer, destination string) error {
	switch {
	case a.Active != "":
		return fmt.Errorf("%w: mirror %q from here to the source has not stopped there", cluster.ErrActive, a.Active)
	case slices.Contains(a.Sources, destination):
		return fmt.Errorf("%w: the source has the topic from %v", cluster.ErrLoop, a.Sources)
	}
	return nil
}

// identity gives the ids of both clusters, those pinned at first contact if there
// was one.
func (m *Mirror) identity(ctx context.Context) (source, destination string, err error) {
	if source, destination = m.catalog.pin("", ""); source != "" && destination != "" {
		return source, destination, nil
	}
	if source, err = m.source.ID(ctx); err != nil {
		return "", "", fmt.Errorf("source cluster id: %w", err)
	}
	if destination, err = m.destination.ID(ctx); err != nil {
		return "", "", fmt.Errorf("destination cluster id: %w", err)
	}
	source, destination = m.catalog.pin(source, destination)
	return source, destination, nil
}
