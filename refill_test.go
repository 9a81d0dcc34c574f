package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// refilled is a destination that may complete replicas from the source.
type refilled struct {
	*memory.Client
	read fetcher.Refill
}

func (r *refilled) RefillFrom(_ string, read fetcher.Refill) { r.read = read }

func (w *twins) refilled(change func(*mirror.Options)) (*refilled, *mirror.Mirror, func()) {
	o := &mirror.Options{Store: w.storeB, Positions: w.storeA}
	if change != nil {
		change(o)
	}
	to := &refilled{Client: w.b.Client("ab")}
	m, stop := w.mirrorTo("ab", w.a.Client("ab"), to, o)
	settle(time.Second)
	return to, m, stop
}

// again asks for what is at the source from an offset on, and wants it to be what the
// destination has, up to a record that was never mirrored, or an error.
func (r *refilled) again(t *testing.T, w *twins, offset int64, want error) {
	t.Helper()
	b, err := r.read(t.Context(), orders, offset, 1<<20)
	if want != nil {
		if !errors.Is(err, want) || len(b) > 0 {
			t.Errorf("offset %d: %d bytes, %v; want %v", offset, len(b), err, want)
		}
		return
	}
	if err != nil || len(b) == 0 || !bytes.HasSuffix(w.b.Log(orders), b) {
		t.Errorf("offset %d: %d bytes, %v; the destination has\n%s", offset, len(b), err, w.b.Dump(orders))
	}
}

// TestRefill: what was mirrored is read again as it was, in whatever epochs; nothing that
// the source has come to have instead or since, and nothing after a stop or the end of Run.
func TestRefill(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b")
		to, m, stop := w.refilled(nil)
		if err := w.a.Elect(orders, w.follower(t, w.a)); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "c")
		settle(10 * time.Second)
		w.equal()
		for offset := range int64(3) {
			to.again(t, w, offset, nil)
		}
		if err := m.Pause(hour(t), "orders"); err != nil {
			t.Fatal(err)
		}
		if err := w.a.Elect(orders, w.follower(t, w.a)); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "of an epoch that is not known yet")
		to.again(t, w, 1, nil)
		to.again(t, w, 3, cluster.ErrDiverged)
		if err := m.Stop(hour(t), "orders"); err != nil {
			t.Fatal(err)
		}
		to.again(t, w, 1, cluster.ErrRefused)
		kept := to.read
		stop()
		if to.read != nil {
			t.Error("it is given after the end")
		}
		if _, err := kept(t.Context(), orders, 1, 1<<20); !errors.Is(err, mirror.ErrNotRunning) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestRefillOfOtherLogs: another record at the offset, and another topic of the name, are
// no copies.
func TestRefillOfOtherLogs(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a", "b", "c")
		to, m, _ := w.refilled(nil)
		w.parted(t, m)
		to.again(t, w, 3, cluster.ErrDiverged)
	})
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		to, _, _ := w.refilled(nil)
		to.again(t, w, 0, nil)
		if err := errors.Join(w.a.DeleteTopic("orders"), w.a.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1})); err != nil {
			t.Fatal(err)
		}
		w.write(w.a, "z")
		to.again(t, w, 0, cluster.ErrTopicReplaced)
	})
}

// TestRefillEndsWithRun: one that is under way ends before Run does.
func TestRefillEndsWithRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *twins) {
		w.write(w.a, "a")
		slow := &slowReader{Client: w.a.Client("ab")}
		to := &refilled{Client: w.b.Client("ab")}
		_, stop := w.mirrorTo("ab", slow, to, &mirror.Options{Store: coordinator.NewMemory()})
		settle(time.Second)
		slow.hangs = make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := to.read(context.Background(), orders, 0, 100)
			ended <- err
		}()
		<-slow.hangs
		stop()
		if slow.reading.Load() {
			t.Error("the source is read after Run")
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// slowReader is a source whose Read hangs, and closes hangs then.
type slowReader struct {
	*memory.Client
	hangs   chan struct{}
	reading atomic.Bool
}

func (s *slowReader) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	if s.hangs == nil {
		return s.Client.Read(ctx, p, offset, maxBytes)
	}
	s.reading.Store(true)
	defer s.reading.Store(false)
	close(s.hangs)
	<-ctx.Done()
	<-time.After(time.Second)
	return nil, ctx.Err()
}
