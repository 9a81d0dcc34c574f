package metalog

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// position is a place between two batches: the offset of the next one and the
// epoch of the last one.
type position struct {
	offset int64
	epoch  int32
}

// tail is the end of the log as fetched: a KRaft leader hands out records above
// its high watermark too, which may yet be gone. It is pure.
type tail struct {
	fetched position // behind the last batch in waiting
	waiting []byte   // whole batches that are not known to be committed
}

// add takes what one fetch brought. Batches follow each other without a gap, and
// the last one may be cut short; it will be fetched again.
func (t *tail) add(b []byte) error {
	for len(b) >= batch.HeaderSize && batch.Header(b).Length() <= len(b) {
		h, err := first(b)
		if err != nil {
			return err
		}
		if h.Base() > t.fetched.offset || h.Next() <= t.fetched.offset {
			return fmt.Errorf("%w: metadata batch %d to %d where %d is due", cluster.ErrCorrupt, h.Base(), h.Next(), t.fetched.offset)
		}
		t.waiting = append(t.waiting, h...)
		t.fetched = position{h.Next(), h.LeaderEpoch()}
		b = b[len(h):]
	}
	return nil
}

// committed takes the batches below the high watermark out of waiting. They are
// valid until the next add.
func (t *tail) committed(mark int64) []byte {
	n := 0
	for n < len(t.waiting) && batch.Header(t.waiting[n:]).Next() <= mark {
		n += batch.Header(t.waiting[n:]).Length()
	}
	out := t.waiting[:n:n]
	t.waiting = t.waiting[n:]
	if len(t.waiting) == 0 {
		t.waiting = nil // the memory goes with who reads out
	}
	return out
}
