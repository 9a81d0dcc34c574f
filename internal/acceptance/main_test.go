package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
	"github.com/clustermirror/mirror/verify"
)

func TestMain(m *testing.M) {
	kafkatest.Child("mirror", child)
	kafkatest.Child("homeward", homeward)
	kafkatest.Child("guardian", guardian)
	kafkatest.Child("keeper", keeper)
	kafkatest.Child("joined", joinedChild)
	kafkatest.Child("worker", worker)
	goleak.VerifyTestMain(kafkatest.Suite{M: m})
}

// long says that the tests run at full size.
func long() bool { return os.Getenv("MIRROR_LONG") != "" }

// sized is one number in the ordinary run and another in the long one.
func sized[T any](ordinary, full T) T {
	if long() {
		return full
	}
	return ordinary
}

// child mirrors in a process of its own, to be killed or frozen, and prints what
// happens: name, source, destination, topics.
func child(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	source, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[1], ",")})
	if err != nil {
		return err
	}
	destination, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[2], ",")})
	if err != nil {
		return err
	}
	m, err := mirror.New(args[0], source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: strings.Split(args[3], ",")},
		Events: mirror.Events{State: func(e mirror.StateEvent) {
			fmt.Printf("state %v %s %s %s %v\n", e.Partition, e.From, e.To, kind(e.Err), e.Err)
		}},
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// kind names the sentinel in an error.
func kind(err error) string {
	for name, is := range map[string]error{
		"fenced": mirror.ErrFenced, "displaced": mirror.ErrDisplaced, "foreign": mirror.ErrForeignWrite, "diverged": mirror.ErrDiverged,
	} {
		if errors.Is(err, is) {
			return name
		}
	}
	return "-"
}

func spawn(t *testing.T, name string, src, dst *kafkatest.Cluster, topics ...string) *kafkatest.Process {
	return kafkatest.SpawnChild(t, "mirror", name, strings.Join(src.Bootstrap(), ","), strings.Join(dst.Bootstrap(), ","), strings.Join(topics, ","))
}

// connect makes an end of a mirror, closed with the test.
func connect(t *testing.T, c *kafkatest.Cluster, with ...func(*kafka.Config)) *kafka.Cluster {
	t.Helper()
	cfg := kafka.Config{Bootstrap: c.Bootstrap()}
	for _, f := range with {
		f(&cfg)
	}
	end, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	return end
}

// running is a mirror in this process.
type running struct {
	*mirror.Mirror
	t   *testing.T
	end func() // ends Run and waits for it

	mu     sync.Mutex
	states []mirror.StateEvent
	more   chan struct{} // closed and replaced with every event
}

func run(t *testing.T, name string, source mirror.Source, destination mirror.Destination, o mirror.Options) *running {
	t.Helper()
	r := &running{t: t, more: make(chan struct{})}
	o.Events.State = func(e mirror.StateEvent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states = append(r.states, e)
		close(r.more)
		r.more = make(chan struct{})
	}
	m, err := mirror.New(name, source, destination, &o)
	if err != nil {
		t.Fatal(err)
	}
	r.Mirror = m
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.end)
	return r
}

// event waits for the first state event that fits.
func (r *running) event(within time.Duration, what string, fits func(mirror.StateEvent) bool) mirror.StateEvent {
	r.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for from := 0; ; {
		r.mu.Lock()
		events, more := r.states[from:], r.more
		r.mu.Unlock()
		for _, e := range events {
			if fits(e) {
				return e
			}
		}
		from += len(events)
		select {
		case <-more:
		case <-deadline.C:
			r.t.Fatalf("no event %q within %v; status: %+v", what, within, r.Status())
		}
	}
}

func partitions(topic string, n int32) []cluster.Partition {
	ps := make([]cluster.Partition, n)
	for i := range ps {
		ps[i] = cluster.Partition{Topic: topic, Partition: int32(i)}
	}
	return ps
}

// caughtUp waits until the destination's ends are the source's.
func caughtUp(t *testing.T, within time.Duration, src, dst *kafkatest.Cluster, topic string) {
	t.Helper()
	from, to := src.Client(t, kgo.RetryTimeout(5*time.Second)), dst.Client(t, kgo.RetryTimeout(5*time.Second))
	kafkatest.Eventually(t, within, func(ctx context.Context) error {
		a, err := highWatermarks(ctx, from, topic)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b, err := highWatermarks(ctx, to, topic)
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			return fmt.Errorf("%s: source ends at %v, destination at %v", topic, a, b)
		}
		return nil
	})
}

// equal proves that both clusters hold the same records.
func equal(t *testing.T, src, dst *kafkatest.Cluster, topic string, n int32) {
	t.Helper()
	equalBetween(t, connect(t, src), connect(t, dst), topic, n)
}

func equalBetween(t *testing.T, source, destination *kafka.Cluster, topic string, n int32) {
	t.Helper()
	reports, err := verify.Topics(t.Context(), source, destination, partitions(topic, n), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if !r.Equal || !r.EndsEqual {
			t.Errorf("%v: source [%d,%d), destination [%d,%d), differences: %v", r.Partition,
				r.Source.LogStart, r.Source.HighWatermark, r.Destination.LogStart, r.Destination.HighWatermark, r.Differences)
		}
	}
}

func failed(e mirror.StateEvent) bool { return e.To == coordinator.StateFailed }
