package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/logdir"
	"github.com/clustermirror/mirror/internal/metalog"
)

// cutter cuts in a real cluster.
type cutter struct {
	k          *kafkatest.Cluster
	identities *MemoryIdentities
	overrides  Overrides
}

func startCutter(t *testing.T, version string) *cutter {
	t.Helper()
	return &cutter{identities: new(MemoryIdentities), overrides: new(MemoryOverrides), k: kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3,
		Config: map[string]string{"broker.session.timeout.ms": "3000", "default.replication.factor": "3"}})}
}

// config is how a call of its own cuts.
func (c *cutter) config(t *testing.T) TruncateConfig {
	t.Helper()
	cfg := c.listening(t)
	cfg.Membership.Bootstrap, cfg.Membership.ClusterID, cfg.Membership.Identities = c.k.Internal(), c.k.ClusterID(), c.identities
	return cfg
}

// listening is the part that does not depend on the cluster.
func (c *cutter) listening(t *testing.T) TruncateConfig {
	t.Helper()
	cfg := TruncateConfig{
		Membership: Config{IDs: IDs{First: 100, Last: 102}, HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second},
		Overrides:  c.overrides, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	return cfg
}

func (c *cutter) truncate(t *testing.T, change func(*TruncateConfig), cuts ...fetcher.Cut) []Truncation {
	t.Helper()
	cfg := c.config(t)
	began := time.Now()
	var mu sync.Mutex
	var first, last [TruncateReturned + 1]time.Duration
	cfg.Progress = func(_ cluster.Partition, step TruncateStep) {
		mu.Lock()
		defer mu.Unlock()
		if last[step] = time.Since(began).Round(time.Millisecond); first[step] == 0 {
			first[step] = last[step]
		}
	}
	if change != nil {
		change(&cfg)
	}
	out, err := Truncate(within(t, 2*time.Minute), cfg, cuts)
	if err != nil {
		t.Fatalf("Truncate: %v", err)
	}
	for step := range first {
		t.Logf("%v: the first after %v, the last after %v", TruncateStep(step), first[step], last[step])
	}
	t.Logf("%d cut in %v", len(cuts), time.Since(began))
	for _, one := range out {
		if one.Err != nil {
			t.Fatal(one.Err)
		}
	}
	return out
}

// logs are those of all replicas, equal byte for byte.
func (c *cutter) logs(t *testing.T, p cluster.Partition) logdir.Log {
	t.Helper()
	var first logdir.Log
	kafkatest.Eventually(t, time.Minute, func(context.Context) error { // what was written a moment ago is on its way
		for id := 1; id <= 3; id++ {
			l, err := logdir.Read(c.k.LogDir(id), p)
			if err != nil {
				return err
			}
			if id == 1 {
				first = l
			} else if diff := logdir.Diff(first, l); diff != "" {
				return fmt.Errorf("brokers 1 and %d: %s", id, diff)
			}
		}
		return nil
	})
	return first
}

// upTo are the batches below an offset.
func upTo(l logdir.Log, offset int64) []logdir.Batch {
	return slices.DeleteFunc(slices.Clone(l.Batches), func(b logdir.Batch) bool { return b.Next > offset })
}

func sameBatches(a, b []logdir.Batch) bool {
	return slices.EqualFunc(a, b, func(x, y logdir.Batch) bool { return bytes.Equal(x.Bytes, y.Bytes) })
}

// produceBatches writes batches of ten records.
func (c *cutter) produceBatches(t *testing.T, topic string, partition int32, batches int, text string) {
	t.Helper()
	cl := c.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50*time.Millisecond))
	for n := range batches {
		var rs []*kgo.Record
		for i := range 10 {
			rs = append(rs, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s-%d", text, 10*n+i)})
		}
		if err := cl.ProduceSync(within(t, time.Minute), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// saved keeps what is salvaged.
type saved struct {
	mu    sync.Mutex
	spans []cluster.Span
	bytes []byte
}

func (s *saved) take(_ context.Context, _ cluster.Partition, span cluster.Span, batches iter.Seq2[[]byte, error]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans = append(s.spans, span)
	for b, err := range batches {
		if err != nil {
			return err
		}
		s.bytes = append(s.bytes, b...)
	}
	return nil
}

// TestRealTruncate: a tail goes, on all replicas and to the batch, while others write and
// read; nothing below it does.
func TestRealTruncate(t *testing.T) {
	for _, version := range newest() {
		t.Run(version, func(t *testing.T) {
			c := startCutter(t, version)
			c.k.CreateTopic(t, "orders", 1, 3, map[string]string{"min.insync.replicas": "2"})
			p := cluster.Partition{Topic: "orders"}
			c.produceBatches(t, "orders", 0, 50, "old")
			before := c.logs(t, p)
			if before.End() != 500 || len(before.Batches) != 50 {
				t.Fatalf("%d batches up to %d", len(before.Batches), before.End())
			}
			c.dry(t, p)
			c.inside(t, p, before)
			c.calledOff(t, p)
			c.busy(t, p)
			c.clean(t, "orders")
			c.down(t, p)
		})
	}
}

// down: a replica that cannot cut keeps everybody from it.
func (c *cutter) down(t *testing.T, p cluster.Partition) {
	t.Helper()
	end := c.replica(t, p).End()
	c.k.Kill(3)
	if _, err := observe(t, c.k).Wait(within(t, time.Minute), func(i metalog.Image) bool { b, _ := i.Broker(3); return b.Fenced }); err != nil {
		t.Fatal(err)
	}
	out, err := Truncate(within(t, time.Minute), c.config(t), []fetcher.Cut{{Partition: p, Offset: 10}})
	if err != nil || !errors.Is(out[0].Err, cluster.ErrUnavailable) || !strings.Contains(out[0].Err.Error(), "broker 3") {
		t.Errorf("with broker 3 down: %+v, %v", out, err)
	}
	if now := c.replica(t, p).End(); now != end {
		t.Errorf("the log ended at %d and ends at %d", end, now)
	}
}

// dry: nothing happens, and it is said what would.
func (c *cutter) dry(t *testing.T, p cluster.Partition) {
	t.Helper()
	got := c.truncate(t, func(cfg *TruncateConfig) {
		cfg.DryRun, cfg.Salvage = true, func(context.Context, cluster.Partition, cluster.Span, iter.Seq2[[]byte, error]) error {
			return errors.New("salvaged in a dry run")
		}
	}, fetcher.Cut{Partition: p, Offset: 203})[0]
	if got.At != 200 || got.LogStart != 0 || got.LogEnd != 500 || got.Batches != 30 || len(got.Replicas) != 3 || len(got.InSync) != 3 {
		t.Errorf("a dry run says %+v", got)
	}
	if end := c.logs(t, p).End(); end != 500 {
		t.Errorf("after a dry run the log ends at %d", end)
	}
	if left, _ := c.identities.All(t.Context()); len(left) > 0 {
		t.Error("a dry run has become a broker")
	}
}

// inside: the whole batch goes that holds the offset, and is saved.
func (c *cutter) inside(t *testing.T, p cluster.Partition, before logdir.Log) {
	t.Helper()
	kept := new(saved)
	got := c.truncate(t, func(cfg *TruncateConfig) { cfg.Salvage = kept.take }, fetcher.Cut{Partition: p, Offset: 203})[0]
	t.Logf("whole %v, leaderless %v", got.Took, got.Leaderless)
	if got.At != 200 || got.Took <= 0 || got.Leaderless <= 0 {
		t.Errorf("cut: %+v", got)
	}
	if got.Took > 5*time.Second || got.Leaderless > 2500*time.Millisecond {
		t.Errorf("%v whole, %v leaderless: five times the bar", got.Took, got.Leaderless)
	}
	after := c.logs(t, p)
	if after.End() != 200 || !sameBatches(after.Batches, upTo(before, 200)) {
		t.Errorf("%d batches up to %d are left", len(after.Batches), after.End())
	}
	var lost []byte
	for _, b := range before.Batches[20:] {
		lost = append(lost, b.Bytes...)
	}
	if !bytes.Equal(kept.bytes, lost) || !slices.Equal(kept.spans, []cluster.Span{{From: 200, To: 500}}) {
		t.Errorf("%d bytes of %v saved, %d were there", len(kept.bytes), kept.spans, len(lost))
	}
	if ends := c.k.Ends(within(t, time.Minute), t, p.Topic); ends[0] != 200 {
		t.Errorf("clients see the end %d", ends[0])
	}
	if again := c.truncate(t, nil, fetcher.Cut{Partition: p, Offset: 203})[0]; !again.Nothing() {
		t.Errorf("cut again: %+v", again)
	}
}

// calledOff: whoever called gives up while we lead.
func (c *cutter) calledOff(t *testing.T, p cluster.Partition) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	cfg := c.config(t)
	cfg.Progress = func(_ cluster.Partition, step TruncateStep) {
		if step == TruncateLed {
			cancel()
		}
	}
	out, err := Truncate(ctx, cfg, []fetcher.Cut{{Partition: p, Offset: 10}})
	if err != nil || !errors.Is(out[0].Err, context.Canceled) {
		t.Errorf("called off: %+v, %v", out, err)
	}
	if end := c.logs(t, p).End(); end != 200 {
		t.Errorf("the log ends at %d", end)
	}
	c.clean(t, p.Topic)
}

// busy: one writes with acks=all and a group reads meanwhile.
func (c *cutter) busy(t *testing.T, p cluster.Partition) {
	t.Helper()
	reader := c.k.Client(t, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics(p.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var mu sync.Mutex
	read, again := make(map[string]bool), 0
	reading, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for reading.Err() == nil {
			reader.PollFetches(reading).EachRecord(func(r *kgo.Record) {
				mu.Lock()
				defer mu.Unlock()
				if read[string(r.Value)] {
					again++
				}
				read[string(r.Value)] = true
			})
		}
	}()
	defer func() { stop(); <-over }()
	w := startNumbered(t, c.k, p.Topic)
	w.waitAcked(t, 200)
	before := c.replica(t, p)
	at := before.End() - 100
	kept := new(saved)
	got := c.truncate(t, func(cfg *TruncateConfig) { cfg.Salvage = kept.take }, fetcher.Cut{Partition: p, Offset: at})[0]
	written := w.count()
	w.waitAcked(t, 200)
	t.Logf("whole %v, leaderless %v, the slowest write %v; salvaged %v", got.Took, got.Leaderless, w.take(), kept.spans)
	w.stop()
	if w.failed != nil {
		t.Errorf("the writer was told %v", w.failed)
	}
	after := c.logs(t, p)
	if !sameBatches(upTo(after, got.At), upTo(before, got.At)) {
		t.Errorf("below %d the logs are not what they were", got.At)
	}
	there, lost := values(t, after.Batches), make(map[string]bool)
	for w := batch.Walk(kept.bytes); w.Next(); {
		for v := range valuesOf(t, w.Header()) {
			lost[v] = true
		}
	}
	for n := range w.count() {
		v := "n-" + strconv.Itoa(n)
		if !there[v] && !lost[v] {
			t.Errorf("%s was acknowledged, and is neither there nor saved", v)
		}
		if n >= written && !there[v] {
			t.Errorf("%s was acknowledged after the cut, and is gone", v)
		}
	}
	if span := (cluster.Span{From: got.At, To: got.LogEnd}); len(lost) != int(span.Len()) {
		t.Errorf("%d records saved of %v", len(lost), span)
	}
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for n := written; n < w.count(); n++ {
			if v := "n-" + strconv.Itoa(n); !read[v] {
				return fmt.Errorf("the group has not read %s", v)
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if again >= int(got.At) { // what was cut before it was acknowledged is written, and read, again
		t.Errorf("the group has read %d records again: it began anew", again)
	}
}

// replica is the log of broker 1, whatever the others have.
func (c *cutter) replica(t *testing.T, p cluster.Partition) logdir.Log {
	t.Helper()
	l, err := logdir.Read(c.k.LogDir(1), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func values(t *testing.T, batches []logdir.Batch) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, b := range batches {
		for v := range valuesOf(t, b.Bytes) {
			all[v] = true
		}
	}
	return all
}

func valuesOf(t *testing.T, b []byte) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	if err := batch.Decode(batch.Header(b), func(r batch.Record) error { all[string(r.Value)] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// startNumbered writes n-0, n-1 and so on, one after the other.
func startNumbered(t *testing.T, k *kafkatest.Cluster, topic string) *writer {
	t.Helper()
	return startWriterOf(t, k, topic, func(n int) string { return "n-" + strconv.Itoa(n) })
}

// clean: nothing of us is left in the cluster.
func (c *cutter) clean(t *testing.T, topics ...string) {
	t.Helper()
	outside := observe(t, c.k)
	if _, err := outside.Wait(within(t, time.Minute), func(i metalog.Image) bool {
		for _, id := range partitionsOf(i, topics...) {
			if p, _ := i.Partition(id); len(p.Replicas) != 3 || len(p.ISR) != 3 || slices.Max(p.Replicas) >= 100 || p.Leader >= 100 {
				return false
			}
		}
		_, ok := i.Broker(100)
		return !ok
	}); err != nil {
		t.Errorf("something of us is left: %v", err)
	}
	if left, err := c.overrides.Topics(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("%v: noted is still %v", err, left)
	}
	if files, _ := filepath.Glob(filepath.Join(c.k.LogDir(1), "*-stray")); len(files) > 0 {
		t.Errorf("strays on disk: %v", files)
	}
}
