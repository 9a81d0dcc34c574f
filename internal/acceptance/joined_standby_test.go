package acceptance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// worker is one of the processes that stand by for each other: name, source, destination
// (clients', between brokers), topics, its own name, first broker id. It begins anew when another
// one has taken over.
func worker(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for {
		err := workerOnce(ctx, args)
		if !errors.Is(err, mirror.ErrSuperseded) {
			return err
		}
		fmt.Println("superseded", err)
	}
}

func workerOnce(ctx context.Context, args []string) error {
	source, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[1], ",")})
	if err != nil {
		return err
	}
	defer source.Close()
	admin, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[2], ",")})
	if err != nil {
		return err
	}
	defer admin.Close()
	store, err := statekafka.New(statekafka.Config{Bootstrap: strings.Split(args[2], ","), Topic: "__state_of_" + args[0]})
	if err != nil {
		return err
	}
	defer store.Close()
	shared := broker.NewShared(store, args[0])
	first, err := strconv.Atoi(args[6])
	if err != nil {
		return err
	}
	cfg := broker.DestinationConfig{
		Workers: args[0],
		Membership: broker.Config{
			Bootstrap: strings.Split(args[3], ","), IDs: broker.IDs{First: int32(first), Last: int32(first) + 2}, Identities: shared.Identities(), Name: args[5],
			HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		},
		Admin: admin, Overrides: shared.Overrides(),
		Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
	}
	for _, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, broker.Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	destination, err := broker.NewDestination(cfg)
	if err != nil {
		return err
	}
	m, err := mirror.New(args[0], source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: []string{args[4]}}, Store: store, RetryMax: 3 * time.Second,
		Events: mirror.Events{State: func(e mirror.StateEvent) {
			fmt.Printf("state %v %s %s %s %v\n", e.Partition, e.From, e.To, kind(e.Err), e.Err)
		}},
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

func standUp(t *testing.T, name, self string, src, dst *kafkatest.Cluster, topic string, first int) *kafkatest.Process {
	t.Helper()
	p := kafkatest.SpawnChild(t, "worker", name, strings.Join(src.Bootstrap(), ","), strings.Join(dst.Bootstrap(), ","),
		strings.Join(dst.Internal(), ","), topic, self, strconv.Itoa(first))
	t.Cleanup(func() {
		if t.Failed() {
			for _, l := range p.Lines() {
				t.Log(l)
			}
		}
	})
	return p
}

// placement of a topic's partitions: leaders, replicas and in-sync sets.
func placement(ctx context.Context, cl *kgo.Client, topic string) (string, []kmsg.MetadataResponseTopicPartition, error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	m, err := req.RequestWith(ctx, cl)
	if err != nil {
		return "", nil, err
	}
	ps := m.Topics[0].Partitions
	slices.SortFunc(ps, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	text := ""
	for _, p := range ps {
		text += fmt.Sprintf(" %d: leader %d replicas %v in sync %v;", p.Partition, p.Leader, p.Replicas, p.ISR)
	}
	return text, ps, nil
}

// ledBy waits until a worker leads all partitions, with those in sync.
func ledBy(t *testing.T, dst *kafkatest.Cluster, topic string, leader int32, isr ...int32) {
	t.Helper()
	cl := dst.Client(t)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		text, ps, err := placement(ctx, cl, topic)
		for _, p := range ps {
			slices.Sort(p.ISR)
			if p.Leader != leader || !slices.Equal(p.ISR, isr) {
				err = errors.New(text)
			}
		}
		if err == nil && len(ps) == 0 {
			err = errors.New("no partitions")
		}
		return err
	})
}

// reader reads all partitions of a topic, notes every break and every pause.
type reader struct {
	t    *testing.T
	mu   sync.Mutex
	next map[int32]int64
	last map[int32]time.Time
	made map[int32]time.Time // when the last record was
	from time.Time           // of calm
	gap  time.Duration       // the longest of a partition without a record, since calm
	end  func()
}

func read(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32) *reader {
	t.Helper()
	offsets := make(map[int32]kgo.Offset)
	for p := range partitions {
		offsets[p] = kgo.NewOffset().At(0)
	}
	cl, err := kgo.NewClient(append(c.ClientOpts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.FetchMaxWait(250*time.Millisecond),
		kgo.RequestTimeoutOverhead(500*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, next: make(map[int32]int64), last: make(map[int32]time.Time), made: make(map[int32]time.Time)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cl.Close()
		for ctx.Err() == nil {
			r.take(cl.PollFetches(ctx))
		}
	}()
	r.end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(r.end)
	return r
}

func (r *reader) take(f kgo.Fetches) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.EachRecord(func(rec *kgo.Record) {
		if want := r.next[rec.Partition]; rec.Offset != want {
			r.t.Errorf("partition %d: offset %d was read, want %d", rec.Partition, rec.Offset, want)
		}
		r.next[rec.Partition] = rec.Offset + 1
		now := time.Now()
		if last, ok := r.last[rec.Partition]; ok {
			r.gap = max(r.gap, now.Sub(last))
		}
		r.last[rec.Partition], r.made[rec.Partition] = now, rec.Timestamp
	})
}

// calm begins to look for pauses anew.
func (r *reader) calm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gap, r.from = 0, time.Now()
}

// stoodStill fails at five times the second that the death of a worker may cost readers,
// and later where other packages' clusters run beside this one.
func stoodStill(t *testing.T, event string, pause time.Duration) {
	t.Helper()
	limit := 5 * time.Second
	if !long() {
		limit *= 3
	}
	if t.Logf("%s: readers stood still for %v", event, pause); pause > limit {
		t.Errorf("%s: readers stood still for %v, want at most %v", event, pause, limit)
	}
}

// pause is the longest of a partition since calm, once each has brought a record that was
// made half a second later.
func (r *reader) pause(partitions int32) time.Duration {
	r.t.Helper()
	kafkatest.Eventually(r.t, 30*time.Second, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for p := range partitions {
			if r.made[p].Before(r.from.Add(500 * time.Millisecond)) {
				return fmt.Errorf("partition %d: the last record was made at %v, %v", p, r.made[p], r.next)
			}
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gap
}

// TestJoinedStandby: the worker that leads is killed, and later frozen, under load. Another
// one leads within a second, readers go on where they were, nobody can write meanwhile, and
// the replicas are the source's at the end.
func TestJoinedStandby(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			topic, name, n := "joined-standby-"+version[:1], "standby-"+version[:1], int32(4)
			src.CreateTopic(t, topic, n, 1, nil)
			stop := writer(t, src, topic, n, 0)
			up := func(self string) *kafkatest.Process { return standUp(t, name, self, src, dst, topic, 130) }
			first := up("first")
			ledBy(t, dst, topic, 130, 130)
			second := up("second")
			ledBy(t, dst, topic, 130, 130, 131)
			r := read(t, dst, topic, n)
			r.calm()
			r.pause(n)

			r.calm()
			first.Kill()
			stoodStill(t, "killed", r.pause(n))
			ledBy(t, dst, topic, 131, 131)
			refused(t, dst, cluster.Partition{Topic: topic})

			up("first") // it stands by from now on
			ledBy(t, dst, topic, 131, 130, 131)
			r.calm()
			second.Stop()
			stoodStill(t, "frozen", r.pause(n))
			refused(t, dst, cluster.Partition{Topic: topic})
			second.Cont()
			second.WaitLine(timeout(t, 30*time.Second), "superseded")
			ledBy(t, dst, topic, 130, 130, 131)
			r.calm()
			r.pause(n)
			stop()
			caughtUp(t, time.Minute, src, dst, topic)
			equal(t, src, dst, topic, n)
			sameBytes(t, time.Minute, src, dst, 1, topic, n)
			r.end()
		})
	}
}
