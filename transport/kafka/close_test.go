package kafka

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// TestAppendWhileItCloses: what is appended after Close has begun is refused, not
// begun anew, and nothing is left running.
func TestAppendWhileItCloses(t *testing.T) {
	f := fake(t, 1, "t", 2)
	before := goleak.IgnoreCurrent()
	c := open(t, f.ListenAddrs())
	p1 := cluster.Partition{Topic: "t", Partition: 1}
	beginAt(t, c, stretchOf(p0))
	beginAt(t, c, stretchOf(p1))
	mustAppend(t, c, p0, batchesAt(0, 1, 5, now()))
	gen, release := c.generation(), make(chan struct{})
	gen.spawn(func(context.Context) { <-release }) // Close waits for it
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	<-gen.ctx.Done()
	if r := appendRun(t, c, p0, batchesAt(5, 1, 5, now())); !errors.Is(r.Err, cluster.ErrUnreachable) || r.Next != 5 {
		t.Errorf("while it closes: %+v", r)
	}
	if r := appendRun(t, c, p0, batchesAt(5, 1, 5, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("while it closes, again: %+v", r)
	}
	close(release)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if r := appendRun(t, c, p0, batchesAt(5, 1, 5, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("after Close, without Ends: %+v", r)
	}
	goleak.VerifyNone(t, before)
	if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 5 {
		t.Errorf("the log ends at %d: something was appended", e.LogEnd)
	}
	mustAppend(t, c, p0, batchesAt(5, 1, 5, now()))
	c.Close()
	goleak.VerifyNone(t, before)
}

// TestCloseWhileAppending: every append is answered once, whenever Close comes.
func TestCloseWhileAppending(t *testing.T) {
	const partitions = 4
	f := fake(t, 2, "t", partitions)
	before := goleak.IgnoreCurrent()
	c := open(t, f.ListenAddrs())
	var handed, answered, landed atomic.Int64
	var appenders sync.WaitGroup
	stop := make(chan struct{})
	for i := range int32(partitions) {
		p := cluster.Partition{Topic: "t", Partition: i}
		beginAt(t, c, stretchOf(p))
		appenders.Go(func() {
			for base := int64(0); ; base += 2 {
				select {
				case <-stop:
					return
				default:
				}
				handed.Add(1)
				c.Append(p, batchesAt(base, 1, 2, now()), nil, func(r fetcher.Result) {
					answered.Add(1)
					if r.Err == nil {
						landed.Add(1)
					}
				})
				runtime.Gosched()
			}
		})
	}
	deadline := time.Now().Add(20 * time.Second)
	for landed.Load() < 50 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	close(stop)
	appenders.Wait()
	c.Close() // what came between is answered by now, but for the answers on their way
	for answered.Load() < handed.Load() && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	goleak.VerifyNone(t, before)
	if h, a, l := handed.Load(), answered.Load(), landed.Load(); h != a || l < 50 || l == h {
		t.Errorf("%d handed over, %d answered, %d of them landed", h, a, l)
	}
}

// TestFillThatIsGivenUp returns when its last append has been answered, and
// appends nothing more.
func TestFillThatIsGivenUp(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	var once sync.Once
	held, release := make(chan struct{}), make(chan struct{})
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.SleepControl(func() {
			once.Do(func() { close(held) })
			<-release
		})
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.StartAt(ctx, stretchOf(p0), 5*fillerRecords, nil) }()
	<-held
	cancel()
	select {
	case err := <-done:
		close(release)
		t.Fatalf("returned with an append under way: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := f.PartitionInfo("t", 0).HighWatermark; got != fillerRecords {
		t.Errorf("log ends at %d, want %d", got, fillerRecords)
	}
}
