package mirror

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// confirm is how long a log end must stay unexplained before it is believed.
const confirm = time.Second

// watchEnds looks whether logs that are being mirrored have grown by something
// that this mirror did not append. While the source is idle nothing else would
// show it. Who did it is found out where the log end is read again: the partition
// fails, is tried again, and fails for good if the records are foreign.
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
		if was := suspects[p]; was.From == now.From && s.State == coordinator.StateMirroring {
			m.fail(p, &cluster.OffsetError{Partition: p, Span: now, Err: cluster.ErrFenced,
				Detail: fmt.Sprintf("the destination log ends at %d, this mirror has appended up to %d", now.To, now.From)})
		}
	}
}

// unexplained gives the partitions whose destination ends beyond what this mirror
// has been told of its appends.
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
		span := cluster.Span{From: known[i], To: answers[i].HighWatermark}
		if answers[i].Err == nil && span.Len() > 0 && m.boards.get(p).LogEnd.Load() == known[i] {
			out[p] = span
		}
	}
	return out
}
