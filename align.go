package mirror

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/epoch"
)

// found is what alignment found out about a partition.
type found struct {
	fetcher.Aligned
	sources []string // ids of the clusters that the topic comes from
}

// alignAll performs LOG_ALIGNMENT. Each partition's outcome is posted as soon as
// it is known: one that takes long keeps no other waiting (I10).
func (m *Mirror) alignAll(ctx context.Context, ts []task) {
	m.alignTasks(ctx, ts, func(t task, a found) {
		switch {
		case a.Err != nil:
			m.report(t, coordinator.EventFailed, fmt.Errorf("alignment: %w", a.Err))
		case a.Cut >= 0:
			m.part(ctx, t, a)
		case m.first(t):
			m.configure.put(alignment{t, a})
		default:
			m.aligned(t, a)
		}
	})
}

// aligned has a partition copied.
func (m *Mirror) aligned(t task, a found) {
	m.going.Delete(t.rec.Partition)
	m.left.Delete(t.rec.Partition)
	m.boards.get(t.rec.Partition).LogEnd.Store(a.Next)
	m.compared.Store(t.rec.Partition, struct{}{})
	m.grounds.Store(t.rec.Partition, a.There)
	m.post(t, coordinator.Event{
		Kind: coordinator.EventAligned, How: a.How, Epochs: epochs(a), Unproven: a.Unproven, Sources: a.sources,
	})
}

// epochs is the history found, never nil: it replaces what is recorded.
func epochs(a found) epoch.History {
	if a.Epochs == nil {
		return epoch.History{}
	}
	return a.Epochs
}

// alignTasks finds out where the logs of partitions part, or that they do not. done
// is called once for each task that has not been superseded before.
func (m *Mirror) alignTasks(ctx context.Context, ts []task, done func(task, found)) {
	ctx, cancel := context.WithTimeout(ctx, m.opts.AlignmentTimeout)
	defer cancel()
	ts = current(ts)
	source, _, err := m.identity(ctx)
	answers, errs := m.peers(ctx, ts)
	ends := m.beginAll(ts) // until here nothing was done that a stop would have to wait for
	targets := make([]fetcher.Target, 0, len(ts))
	at := make([]int, 0, len(ts))
	for i, t := range ts {
		switch {
		case ends[i] == nil:
			continue // superseded
		case err == nil && t.rec.Appended && len(t.rec.Sources) > 0 && t.rec.Sources[0] != source:
			errs[i] = fmt.Errorf("%w: source id is %s, mirrored was %s", cluster.ErrClusterReplaced, source, t.rec.Sources[0])
		case err != nil:
			errs[i] = err
		}
		if errs[i] != nil {
			ends[i]()
			done(t, found{Aligned: fetcher.Aligned{Err: errs[i], Cut: -1}})
			continue
		}
		targets, at = append(targets, m.target(t, answers[i])), append(at, i)
	}
	fetcher.Align(ctx, m.source, m.destination, m.destination, targets, func(k int, a fetcher.Aligned) {
		i := at[k]
		ends[i]()
		if a.Source != (cluster.Offsets{}) {
			board := m.boards.get(ts[i].rec.Partition)
			board.Source.Store(a.Source.HighWatermark)
			board.LogStart.Store(a.Source.LogStart)
		}
		done(ts[i], found{a, append([]string{source}, answers[i].Sources...)})
	})
}

// beginAll marks partitions as being aligned, or cut, until end is called. What was
// superseded meanwhile has none.
func (m *Mirror) beginAll(ts []task) (ends []func()) {
	ends = make([]func(), len(ts))
	for i, t := range ts {
		if t.ctx.Err() != nil {
			continue
		}
		end, err := m.aligning.begin(t.ctx, t.rec.Partition)
		if err != nil {
			continue
		}
		if t.ctx.Err() != nil { // whoever superseded it may have waited before it began
			end()
			continue
		}
		ends[i] = end
	}
	return ends
}

// target says all that is known of a partition.
func (m *Mirror) target(t task, peer coordinator.PositionAnswer) fetcher.Target {
	out := fetcher.Target{
		Stretch: m.stretch(t.rec), TopicID: t.rec.TopicID, Context: t.ctx, Progress: m.boards.get(t.rec.Partition),
		Epochs: t.rec.Epochs, Unproven: t.rec.Unproven, Aligned: t.rec.Aligned,
		Policy: fetcher.Policy{
			Unclean: m.unclean.Includes(t.rec.Partition.Topic), DiscardLocalWrites: m.opts.DiscardLocalWrites,
			Scratch: m.opts.Scratch, Start: m.opts.Start,
		},
	}
	if t.rec.Later {
		out.Policy.Start = Start{}
	}
	if t.rec.HasPosition {
		out.Own = &t.rec.Position
	}
	if peer.Found {
		out.Peer, out.PeerTopic = &peer.Position, peer.TopicID
	}
	return out
}
