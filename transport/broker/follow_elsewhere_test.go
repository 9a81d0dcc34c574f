package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/lead"
)

// batchAt is a batch of n records.
func batchAt(base int64, n int, epoch int32) []byte {
	s := batch.Spec{Base: base, LeaderEpoch: epoch}
	for i := range n {
		s.Records = append(s.Records, batch.Record{Offset: base + int64(i), Value: fmt.Appendf(nil, "value %d", base+int64(i))})
	}
	return batch.Encode(s)
}

func TestWhole(t *testing.T) {
	a, b, c := batchAt(10, 5, 1), batchAt(15, 5, 1), batchAt(25, 5, 1) // and a gap
	all := slices.Concat(a, b, c)
	for name, tt := range map[string]struct {
		in            []byte
		offset, below int64
		want          []byte
	}{
		"everything":         {all, 10, 30, all},
		"in the middle":      {all, 17, 30, slices.Concat(b, c)},
		"in a gap":           {all, 22, 30, c},
		"an end":             {all, 10, 20, slices.Concat(a, b)},
		"an end inside":      {all, 10, 29, slices.Concat(a, b)},
		"the last cut short": {all[:len(all)-1], 15, 30, b},
		"nothing whole":      {a[:len(a)-1], 10, 30, nil},
		"all behind":         {all, 10, 14, nil},
		"all before":         {all, 30, 40, nil},
		"nothing":            {nil, 10, 30, nil},
		"no batches":         {bytes.Repeat([]byte{0xff}, 200), 10, 30, nil},
	} {
		if got := whole(tt.in, tt.offset, tt.below); !bytes.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(tt.want))
		}
	}
}

// lacker is follower 1 of partitions that are led, with 30 records that have left the
// window: 2 and 3 have them.
type lacker struct {
	server  *Server
	client  *client
	session *fetchSession
	parts   []*lead.Partition
	asked   []string
	answer  func(replica int32, p lackingPiece) ([]byte, error)
	mark    int64 // that the replicas know
}

func startLacker(t *testing.T, partitions int) *lacker {
	l := &lacker{server: newServer(ServerConfig{}, nil, nil, nil), session: newFetchSession(1, false)}
	l.client = &client{server: l.server}
	var mu sync.Mutex
	l.server.read = func(ctx context.Context, replica int32, p lackingPiece) ([]byte, int64, error) {
		mu.Lock()
		l.asked = append(l.asked, fmt.Sprint(replica, "@", p.offset))
		mu.Unlock()
		b, err := l.answer(replica, p)
		return b, l.mark, err
	}
	var all []int32
	for n := range int32(partitions) {
		p := lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: cluster.Partition{Topic: "t", Partition: n}, Quorum: 2, Followers: []int32{1, 2, 3}})
		fetch := func(offset int64, replicas ...int32) {
			for _, replica := range replicas {
				p.Fetch(lead.Fetch{Replica: replica, Offset: offset, LastEpoch: min(int32(offset), 1) - 1, MaxBytes: 1 << 20, Now: time.Now()}).Release()
			}
		}
		fetch(0, 1, 2, 3)
		p.Append([]cluster.Batch{{Base: 0, Next: 30, Epoch: 0, Bytes: batchAt(0, 30, 0)}}, nil, func(int64, int, error) {})
		fetch(30, 2, 3)
		if s := p.State(); s.HighWatermark != 30 || s.Window != 0 {
			t.Fatalf("%+v", s)
		}
		l.server.led.add(p)
		l.parts, all = append(l.parts, p), append(all, n)
	}
	l.session.update(l.fetch(0, all...))
	return l
}

func (l *lacker) fetch(offset int64, partitions ...int32) *kmsg.FetchRequest {
	req := fetchOf(0, 0, partitions...)
	for i := range partitions {
		p := &req.Topics[0].Partitions[i]
		p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = 0, offset, min(int32(offset), 1)-1
	}
	return req
}

func (l *lacker) look(f *followed, room int, first bool) entry {
	return l.client.look(context.Background(), l.session, f, time.Now(), room, first)
}

// tenths are the batches that a replica has from an offset on.
func tenths(offset int64) []byte {
	var b []byte
	for base := offset / 10 * 10; base < 40; base += 10 { // one more than is ours
		b = append(b, batchAt(base, 10, 0)...)
	}
	return b
}

func (l *lacker) gather() gathering {
	g, _ := l.session.gather(l.look, 1<<20)
	return g
}

// TestReadElsewhere: the records come from the first replica that has them, beside the
// session, and are given up when they are not wanted any more.
func TestReadElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLacker(t, 1)
		defer l.client.reads.Wait()
		release := make(chan struct{})
		l.answer = func(replica int32, p lackingPiece) ([]byte, error) {
			<-release
			if replica == 2 {
				return nil, errors.New("away")
			}
			return tenths(p.offset), nil
		}
		size := func() int { g := l.gather(); defer g.release(); return g.size }
		if got := size(); got != 0 {
			t.Errorf("%d bytes before anything was read", got)
		}
		synctest.Wait()
		if got := size(); got != 0 || len(l.asked) != 1 {
			t.Errorf("%d bytes, asked %v", got, l.asked)
		}
		close(release)
		<-l.session.landed.wake
		g := l.gather()
		if want := slices.Concat(batchAt(0, 10, 0), batchAt(10, 10, 0), batchAt(20, 10, 0)); !slices.Equal(l.asked, []string{"2@0", "3@0"}) || !bytes.Equal(bytes.Join(g.entries[0].records, nil), want) {
			t.Errorf("asked %v, got %d bytes", l.asked, g.size)
		}
		if l.server.pieces.memory.left == piecesMemory {
			t.Error("what was read is not counted")
		}
		g.release()
		if l.server.pieces.memory.left != piecesMemory {
			t.Error("the memory is lost")
		}
		l.gather() // he did not take it: it is read again, and meanwhile he goes on
		<-l.session.landed.wake
		l.session.update(l.fetch(10, 0))
		if got := size(); got != 0 {
			t.Error("he was given what he has")
		}
		<-l.session.landed.wake
		if got := size(); got == 0 || l.asked[len(l.asked)-1] != "3@10" {
			t.Errorf("asked %v, %d bytes", l.asked, got)
		}
		size()
		l.session.close() // with a read under way
		l.client.reads.Wait()
		if l.server.pieces.memory.left != piecesMemory || len(l.server.pieces.slots) != 0 {
			t.Error("the memory of a closed session is lost")
		}
	})
}

// TestReadBeforeACut: what was read before the log was cut is not handed out after it.
func TestReadBeforeACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLacker(t, 1)
		l.answer = func(_ int32, p lackingPiece) ([]byte, error) { return tenths(p.offset), nil }
		l.gather()
		<-l.session.landed.wake
		l.parts[0].Truncate(20, func(error) {})
		for range 3 {
			g := l.gather()
			if g.size > len(tenths(20)) {
				t.Errorf("%d bytes, with what was cut", g.size)
			}
			g.release()
			synctest.Wait()
		}
		l.client.reads.Wait()
		l.session.close()
	})
}

// TestNothingElsewhere: where a replica's log ends in a gap, the follower is sent on
// from there; but not by one that does not know yet that its records are committed.
func TestNothingElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mark, reads := range map[int64]int{29: 2, 30: 1} {
			l := startLacker(t, 1)
			l.mark = mark
			l.answer = func(int32, lackingPiece) ([]byte, error) { return nil, nil }
			l.gather()
			<-l.session.landed.wake
			l.gather()
			l.client.reads.Wait()
			l.parts[0].Append([]cluster.Batch{{Base: 30, Next: 33, Epoch: 0, Bytes: batchAt(30, 3, 0)}}, nil, func(int64, int, error) {})
			g := l.gather()
			if sent := g.size > 0; sent != (mark == 30) || len(l.asked) != reads {
				t.Errorf("high watermark %d: asked %v, then %d bytes", mark, l.asked, g.size)
			}
			g.release()
			l.session.close()
		}
	})
}

// TestReadElsewhereFails: nobody has it; the source is asked, then it is tried again
// after a pause.
func TestReadElsewhereFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLacker(t, 1)
		l.answer = func(int32, lackingPiece) ([]byte, error) { return nil, nil }
		refill := errors.New("source away")
		l.server.cfg.Refill = func(_ context.Context, topic cluster.TopicID, partition int32, offset int64, max int32) ([]byte, error) {
			if topic != (cluster.TopicID{1}) || partition != 0 || offset != 0 || max != 1000 {
				t.Errorf("refill of %v %d at %d, %d bytes", topic, partition, offset, max)
			}
			return batchAt(0, 1, 0), refill
		}
		l.gather()
		<-l.session.landed.wake
		for range 5 {
			if g := l.gather(); g.size != 0 || len(l.asked) != 2 {
				t.Errorf("asked %v", l.asked)
			}
			synctest.Wait()
		}
		time.Sleep(retryRead) // of the bubble's clock
		refill = nil
		l.gather()
		<-l.session.landed.wake
		if g := l.gather(); g.size == 0 || len(l.asked) != 4 {
			t.Errorf("asked %v, %d bytes", l.asked, g.size)
		}
		l.client.reads.Wait()
	})
}

// TestReadWhileParked: a replica that gives the records a little later, as it has to hear
// first that they are committed, keeps a parked fetch waiting no longer than that.
func TestReadWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLacker(t, 1)
		ours, theirs := net.Pipe()
		l.client.conn = ours
		l.server.cfg.FrameTimeout = time.Second
		const hears = 50 * time.Millisecond
		began := time.Now()
		l.answer = func(_ int32, p lackingPiece) ([]byte, error) {
			if time.Since(began) < hears {
				return nil, nil
			}
			return tenths(p.offset), nil
		}
		served := make(chan error, 1)
		go func() {
			served <- l.client.serve(t.Context(), header{version: 17}, l.session, fetchTerms{deadline: began.Add(10 * time.Second), least: 1, most: 1 << 20})
		}()
		got, err := readRequest(t.Context(), theirs, 1<<20, newBudget(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*hears || len(got.bytes) < len(tenths(0))/2 {
			t.Errorf("%d bytes after %v", len(got.bytes), took)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		l.client.reads.Wait()
		l.session.close()
	})
}

// TestReadIsTriedLessOften: one that fails for long is not asked for at every turn, and it
// is said once.
func TestReadIsTriedLessOften(t *testing.T) {
	var waits []time.Duration
	for wait := time.Duration(0); len(waits) < 8; waits = append(waits, wait) {
		wait = longer(wait)
	}
	const ms = time.Millisecond
	if want := []time.Duration{20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1000 * ms, 1000 * ms}; !slices.Equal(waits, want) {
		t.Errorf("%v", waits)
	}
	synctest.Test(t, func(t *testing.T) {
		l := startLacker(t, 1)
		var said bytes.Buffer
		l.server.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		l.answer = func(int32, lackingPiece) ([]byte, error) { return nil, nil }
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			l.gather()
			synctest.Wait()
			time.Sleep(5 * time.Millisecond) // of the bubble's clock
		}
		if n := bytes.Count(said.Bytes(), []byte("\n")); n != 1 || len(l.asked) > 2*16 {
			t.Errorf("said %d times, asked %d times:\n%s", n, len(l.asked), &said)
		}
		l.client.reads.Wait()
		l.session.close()
	})
}

// TestReadsAreBounded: a bounded number at once; the others get their turn.
func TestReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLacker(t, 3*maxReads)
		release := make(chan struct{})
		l.answer = func(_ int32, p lackingPiece) ([]byte, error) {
			<-release
			return tenths(p.offset), nil
		}
		l.gather()
		synctest.Wait()
		if len(l.asked) != maxReads {
			t.Errorf("%d reads at once", len(l.asked))
		}
		close(release)
		served := make(map[int32]bool)
		for len(served) < 3*maxReads {
			<-l.session.landed.wake
			synctest.Wait()
			g := l.gather()
			for _, e := range g.entries {
				if e.size > 0 {
					served[e.partition] = true
					l.session.forget(e.fetchKey)
				}
			}
			g.release()
		}
		l.client.reads.Wait()
	})
}
