package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// confirm is how long a log end must stay unexplained before it is believed.
const confirm = time.Second

// watchEnds looks whether logs that are being mirrored have changed by something
// that this mirror did not do. While the source is idle nothing else would show it.
// One that has grown fails: who did it is found out where the log end is read again,
// and it fails for good if the records are foreign. One that is shorter, as after an
// unclean election at the destination, fails as well and is copied again from where it
// ends.
func (m *Mirror) watchEnds(ctx context.Context, ps []cluster.Partition) {
	suspects := m.unexplained(ctx, ps)
	if len(suspects) == 0 {
		return
	}
	select { // answers that are on their way explain most
	case <-ctx.Done():
		return
	case <-time.After(confirm):
	}
	again := make([]cluster.Partition, 0, len(suspects))
	for p := range suspects {
		again = append(again, p)
	}
	for p, now := range m.unexplained(ctx, again) {
		s, _ := m.coord.Snapshot(p)
		was := suspects[p]
		switch {
		case s.State != coordinator.StateMirroring || was.From != now.From:
		case now.To < now.From && was.To == now.To:
			m.fail(p, fmt.Errorf("%w: %v: the destination log ends at %d, this mirror has appended up to %d",
				cluster.ErrUnavailable, p, now.To, now.From))
		case now.To > now.From && was.To > was.From:
			m.fail(p, &cluster.OffsetError{Partition: p, Span: now, Err: cluster.ErrFenced,
				Detail: fmt.Sprintf("the destination log ends at %d, this mirror has appended up to %d", now.To, now.From)})
		}
	}
}

// producersFrom is from which id on producers have others at the destination.
func (m *Mirror) producersFrom() (id int64, ok bool) {
	if m.can.lifter == nil {
		return 0, false
	}
	return m.can.lifter.ProducersFrom()
}

// watchProducers tells once of producers that have other ids at the destination.
func (m *Mirror) watchProducers() {
	if from, ok := m.producersFrom(); ok && m.lifted.CompareAndSwap(false, true) {
		emit(m.events, m.opts.Events.Producers, ProducersEvent{Mirror: m.name, From: from})
	}
}

// watchLost has logs compared that have come into other hands.
func (m *Mirror) watchLost(ctx context.Context) error {
	if m.can.loser == nil {
		return nil
	}
	for {
		lost, err := m.can.loser.Lost(ctx)
		if err != nil {
			return nil // Run ends
		}
		for _, p := range lost {
			if s, ok := m.coord.Snapshot(p); ok && s.State == coordinator.StateMirroring {
				m.fail(p, fmt.Errorf("%w: %v: others have taken the destination's log", cluster.ErrUnavailable, p))
			}
		}
	}
}

// unexplained gives the partitions whose destination ends elsewhere than this mirror
// has been told of its appends: From is what it was told, To where the log ends.
func (m *Mirror) unexplained(ctx context.Context, ps []cluster.Partition) map[cluster.Partition]cluster.Span {
	if len(ps) == 0 {
		return nil
	}
	known := make([]int64, len(ps))
	for i, p := range ps {
		known[i] = m.boards.get(p).LogEnd.Load()
	}
	answers, err := m.destination.Offsets(ctx, ps)
	if err != nil {
		return nil
	}
	out := map[cluster.Partition]cluster.Span{}
	for i, p := range ps {
		if known[i] < 0 {
			continue // its log end was not read yet
		}
		span := cluster.Span{From: known[i], To: answers[i].HighWatermark}
		if answers[i].Err == nil && span.To != span.From && m.boards.get(p).LogEnd.Load() == known[i] {
			out[p] = span
		}
	}
	return out
}

// watchTopics looks whether somebody has made topics anew at the destination. What
// stands in such a log now is compared before copying goes on: it may be as long as
// the one before.
func (m *Mirror) watchTopics(there map[string]cluster.TopicID) {
	for name, id := range there {
		for _, p := range m.partitionsOf([]string{name}) {
			if was, anew := m.anew(p, id); !anew {
				continue
			} else if s, ok := m.coord.Snapshot(p); ok && s.State == coordinator.StateMirroring {
				m.fail(p, fmt.Errorf("%w: the destination's topic was deleted and created again: its id is %v, was %v", cluster.ErrUnavailable, id, was))
			}
		}
	}
}

// watchSources looks where topics that are being mirrored come from. Mirrors that were
// started at the same moment may not have seen that they form a loop.
func (m *Mirror) watchSources(ctx context.Context, ps []cluster.Partition) {
	if m.can.positions == nil || len(ps) == 0 {
		return
	}
	source, destination, err := m.identity(ctx)
	if err != nil {
		return
	}
	answers, err := m.can.positions.Positions(ctx, destination, ps)
	if err != nil {
		return // the next look asks again
	}
	for i, p := range ps {
		s, ok := m.coord.Snapshot(p)
		from := append([]string{source}, answers[i].Sources...)
		switch {
		case !ok || s.State != coordinator.StateMirroring:
		case slices.Contains(answers[i].Sources, destination):
			m.fail(p, fmt.Errorf("%w: the source has the topic from %v", cluster.ErrLoop, answers[i].Sources))
		case !slices.Equal(from, s.Sources):
			m.coord.Post(coordinator.Event{Partition: p, Kind: coordinator.EventSourcesSeen, Sources: from})
		}
	}
}
