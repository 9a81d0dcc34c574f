package fetcher

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// verbatim: messages of old formats go on as they are. Behind a batch with a leader epoch
// they do not: a replica forgets its epochs when a message without one comes (UnifiedLog).
func (t *tracker) verbatim(traits Traits) bool {
	return traits.OldFormats && traits.Gaps && traits.LogAppendTime && t.lastEpoch < 0
}

// old is a message of format 0 or 1 as a batch; one that is behind the position already has
// no bytes. Where one begins that wraps others only its last offset tells; it is
// decompressed once, and the next ones begin where it ends.
func (t *tracker) old(h batch.Header) (cluster.Batch, error) {
	b := cluster.Batch{Base: h.Base(), Next: h.Base() + 1, Epoch: cluster.NoEpoch}
	timestamp, wraps, err := h.Old()
	start := t.board.LogStart.Load()
	switch {
	case err != nil:
	case b.Next <= t.next:
		return cluster.Batch{}, nil
	case wraps && t.oldEnd == t.next && start <= t.next:
		b.Base = t.next
	case wraps:
		b.Base, err = h.OldBase()
	}
	switch {
	case err != nil:
		return b, t.err(t.next, b.Next, err, "a message of an old format")
	case b.Base > t.next && start > t.next && !t.leap:
		return b, t.err(t.next, b.Base, cluster.ErrRetention, "")
	case b.Base < t.next:
		return b, t.err(b.Base, b.Next, cluster.ErrDiverged, fmt.Sprintf("destination log ends at %d, inside a message that wraps others", t.next))
	}
	b.MaxTimestamp, b.Bytes = timestamp, h
	return b, nil
}

// takeOld goes on behind a message of an old format.
func (t *tracker) takeOld(into []cluster.Batch, h batch.Header) ([]cluster.Batch, error) {
	b, err := t.old(h)
	if err != nil || b.Hole() {
		return into, err
	}
	if b.Base > t.next {
		t.skipTo(min(b.Base, t.board.LogStart.Load()))
	}
	t.next, t.oldEnd, t.dirty = b.Next, b.Next, true
	t.largest = max(t.largest, int32(len(h)))
	return append(into, b), nil
}
