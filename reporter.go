package mirror

import (
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// reporter passes the fetcher's findings to the coordinator.
type reporter struct{ m *Mirror }

func (r reporter) Epoch(p cluster.Partition, epoch int32, start int64, ack func(error)) {
	if r.m.can.raiser != nil && r.m.traits.KeepsEpochs && epoch > r.m.boards.get(p).Ceiling.Load()-epochMargin {
		r.m.ahead.put(p)
	}
	r.m.coord.Post(coordinator.Event{
		Partition: p, Kind: coordinator.EventEpochSeen, Epoch: epoch, Start: start, Trim: r.m.boards.get(p).LogStart.Load(), Ack: ack,
	})
}

func (r reporter) Landed(p cluster.Partition) {
	r.m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventProgress})
}

// Failed: where the logs have parted it is found out where, before anything is
// decided.
func (r reporter) Failed(p cluster.Partition, err error) {
	t, ok := r.m.fetching.take(p)
	switch {
	case !ok:
		r.m.fail(p, err)
	case parted(err):
		r.m.depart.put(divergence{t, err})
	default:
		r.m.report(t, coordinator.EventFailed, err)
	}
}

func (r reporter) RaiseNeeded(p cluster.Partition, _ int32) {
	if t, ok := r.m.fetching.take(p); ok {
		r.m.report(t, coordinator.EventRaiseNeeded, nil)
	}
}

func (r reporter) Stalled(p cluster.Partition, since time.Duration) {
	emit(r.m.events, r.m.opts.Events.Stalled, StalledEvent{Mirror: r.m.name, Partition: p, Since: since})
}

func (r reporter) Held(p cluster.Partition, held fetcher.Held) {
	emit(r.m.events, r.m.opts.Events.Held, HeldEvent{Mirror: r.m.name, Partition: p, Held: held})
}

func (r reporter) Trimmed(p cluster.Partition, to int64) {
	emit(r.m.events, r.m.opts.Events.Trimmed, TrimmedEvent{Mirror: r.m.name, Partition: p, LogStart: to})
}

func (r reporter) Skipped(p cluster.Partition, span cluster.Span) {
	r.m.opts.Logger.Warn("source retention ran ahead, offsets are skipped", "mirror", r.m.name, "topic", p.Topic,
		"partition", p.Partition, "from", span.From, "to", span.To)
	emit(r.m.events, r.m.opts.Events.Skipped, SkippedEvent{Mirror: r.m.name, Partition: p, Span: span})
}

// fetching are the effects that the fetcher is at work on, by which its findings
// are told from those of earlier ones.
type fetching struct {
	mu sync.Mutex
	of map[cluster.Partition]task
}

// put notes an effect, unless a later one of the partition was begun while it waited for
// an answer.
func (f *fetching) put(t task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[t.rec.Partition].effect.Seq > t.effect.Seq {
		return
	}
	if f.of == nil {
		f.of = map[cluster.Partition]task{}
	}
	f.of[t.rec.Partition] = t
}

func (f *fetching) take(p cluster.Partition) (task, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.of[p]
	delete(f.of, p)
	return t, ok
}
