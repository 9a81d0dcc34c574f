package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLookAfterRest: after a rest the log end is looked at before anything is
// sent, so that nothing lands behind a foreign record (I4).
func TestLookAfterRest(t *testing.T) {
	c := open(t, fake(t, 1, "t", 1).ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 1, 10, now()))

	rest(c)
	mustAppend(t, c, p0, batchesAt(10, 1, 10, now())) // nobody wrote: it goes on

	rest(c)
	if at := produceForeign(t, c, p0, 3); at != 20 {
		t.Fatalf("foreign records at %d", at)
	}
	r := appendRun(t, c, p0, batchesAt(20, 2, 5, now()))
	var where *cluster.OffsetError
	if !errors.Is(r.Err, cluster.ErrOutOfOrder) || !errors.As(r.Err, &where) || where.Span != (cluster.Span{From: 20, To: 23}) || r.Batches != 0 {
		t.Errorf("append behind foreign records: %+v", r)
	}
	e := endOf(t, c, stretchOf(p0))
	if e.LogEnd != 23 || !errors.Is(e.Err, cluster.ErrForeignWrite) {
		t.Errorf("log end %d, want 23 with a foreign write: %v", e.LogEnd, e.Err)
	}
}

// TestLookFails: a look that is not answered fails the append, not the lane: Ends
// begins anew.
func TestLookFails(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs(), func(cfg *Config) { cfg.RequestTimeout = 300 * time.Millisecond })
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 1, 10, now()))
	rest(c)
	c.client.Close()
	release := swallowListOffsets(f)
	r := appendRun(t, c, p0, batchesAt(10, 1, 10, now()))
	if !errors.Is(r.Err, cluster.ErrTimeout) {
		t.Errorf("append after a look without an answer: %v", r.Err)
	}
	release()
	if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 10 {
		t.Errorf("log end %d", e.LogEnd)
	}
	mustAppend(t, c, p0, batchesAt(10, 1, 10, now()))
}

// rest makes the lane believe that it has rested.
func rest(c *Cluster) {
	l := c.lane(p0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked = l.looked.Add(-2 * trust)
}

// swallowListOffsets has ListOffsets requests wait until it is released.
func swallowListOffsets(f *kfake.Cluster) (release func()) {
	done := make(chan struct{})
	f.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		f.SleepControl(func() { <-done })
		return nil, nil, false
	})
	return func() { close(done) }
}
