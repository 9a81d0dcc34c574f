package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// A destination that keeps source epochs has its own raised this far above the
// source's, and again before a batch comes nearer than the margin (I5).
const (
	epochLead   = 10
	epochMargin = 3
)

// raiseAll performs EPOCH_FENCING.
func (m *Mirror) raiseAll(ctx context.Context, ts []task) {
	ts = current(ts)
	// The ends are read to take the log over: a worker that is gone by now may have done
	// so last, and only the owner raises.
	ends, err := m.quiet(ctx, ts)
	if err != nil {
		return // Run ends
	}
	ps := make([]cluster.Partition, 0, len(ts))
	live := make([]task, 0, len(ts))
	for i, t := range ts {
		if err := ends[i].Err; err != nil {
			m.report(t, coordinator.EventFailed, fmt.Errorf("destination log end: %w", err))
			continue
		}
		ps, live = append(ps, t.rec.Partition), append(live, t)
	}
	for i, err := range m.raise(ctx, ps, true) {
		if err != nil {
			m.report(live[i], coordinator.EventFailed, fmt.Errorf("raise the leader epoch: %w", err))
			continue
		}
		m.report(live[i], coordinator.EventEpochRaised, nil)
	}
}

// raise brings the destination's leader epochs above the source's present ones.
func (m *Mirror) raise(ctx context.Context, ps []cluster.Partition, fresh bool) []error {
	errs := make([]error, len(ps))
	all := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if m.can.raiser == nil {
		return all(fmt.Errorf("the destination keeps source epochs and cannot raise its own: %w", errors.ErrUnsupported))
	}
	leaders, err := m.source.Leaders(ctx, ps, fresh)
	if err != nil {
		return all(fmt.Errorf("source leaders: %w", err))
	}
	raises := make([]fetcher.EpochRaise, 0, len(ps))
	at := make([]int, 0, len(ps))
	for i, p := range ps {
		if errs[i] = leaders[i].Err; errs[i] == nil {
			raises, at = append(raises, fetcher.EpochRaise{Partition: p, Epoch: leaders[i].Epoch + epochLead}), append(at, i)
		}
	}
	for k, err := range m.can.raiser.RaiseEpochs(ctx, raises) {
		if errs[at[k]] = err; err == nil {
			m.ceiling(ps[at[k]], raises[k].Epoch)
		}
	}
	return errs
}

// ceiling notes a leader epoch that the destination has reached.
func (m *Mirror) ceiling(p cluster.Partition, epoch int32) {
	board := m.boards.get(p)
	for old := board.Ceiling.Load(); epoch > old && !board.Ceiling.CompareAndSwap(old, epoch); old = board.Ceiling.Load() {
	}
}

// raiseAhead raises epochs before a batch comes that needs it, while copying goes
// on. What does not work shows when it is needed.
func (m *Mirror) raiseAhead(ctx context.Context, ps []cluster.Partition) {
	for i, err := range m.raise(ctx, ps, false) {
		if err != nil && ctx.Err() == nil {
			m.opts.Logger.Warn("leader epoch not raised ahead of need", "mirror", m.name, "topic", ps[i].Topic,
				"partition", ps[i].Partition, "err", err)
		}
	}
}

// raiseFirst raises epochs before anything is fetched: what is written at the
// destination after a stop has to have an epoch that the source has never used, also
// when nothing was copied in between. What does not work shows when it is needed.
func (m *Mirror) raiseFirst(ctx context.Context, as []fetcher.Assignment) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout) // a cluster that hangs shows when it is needed
	defer cancel()
	ps := make([]cluster.Partition, len(as))
	for i, a := range as {
		ps[i] = a.Stretch.Partition
	}
	low := m.near(ctx, ps)
	if len(low) == 0 {
		return
	}
	m.raiseAhead(ctx, low)
	for i, p := range ps {
		as[i].Ceiling = max(as[i].Ceiling, m.boards.get(p).Ceiling.Load())
	}
}

// near gives those of ps whose destination epoch the source's has come near to.
func (m *Mirror) near(ctx context.Context, ps []cluster.Partition) (low []cluster.Partition) {
	if !m.traits.KeepsEpochs || m.can.raiser == nil || len(ps) == 0 {
		return nil
	}
	leaders, err := m.source.Leaders(ctx, ps, false)
	if err != nil {
		return nil
	}
	for i, p := range ps {
		if leaders[i].Err == nil && leaders[i].Epoch > m.boards.get(p).Ceiling.Load()-epochMargin {
			low = append(low, p)
		}
	}
	return low
}
