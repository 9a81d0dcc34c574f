package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// The partitions of a storm's topics.
const keptParts, committedParts, lossyParts = 4, 2, 2

// storm is a mirror by members of the destination to which bad things happen.
type storm struct {
	t        *testing.T
	src, dst *kafkatest.Cluster
	workers  []*mirroring
	mirror   string

	kept      string // nothing that was acknowledged is lost at the source
	committed string // of transactions
	lossy     string // the source elects leaders that lack records
	others    string // of the destination, not mirrored

	load      *background // writers at the source
	unwanted  *background // at the destination
	reading   *background
	readers   []*follower
	source    []*follower             // read what each of readers should have
	java      *kafkatest.JavaFollower // reads partition 0 of kept, in the long form
	intruders *intruders
	neighbour *neighbour

	written, read, beside pulse
	costs                 costs
}

// TestStorm: 50 events in random order (6 in the ordinary run) hit the workers, brokers and
// controllers of both clusters, under load. At the end each replica of the destination has
// the source's log byte for byte, every reader has read every record once, nobody has written
// before the stop, and topics of others never noticed. MIRROR_SEED repeats a run.
func TestStorm(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			seed, err := strconv.ParseUint(os.Getenv("MIRROR_SEED"), 10, 64)
			if err != nil {
				seed = 1
			}
			s := newStorm(t, version, 2)
			all := drawn(seed, sized(6, 50))
			t.Logf("seed %d:", seed)
			for n, b := range all {
				t.Logf("  %d: %v", n+1, b)
			}
			s.begin()
			for n, b := range all {
				s.blow(n, b)
			}
			s.end()
		})
	}
}

func newStorm(t *testing.T, version string, workers int) *storm {
	return stormOver(t, joinable(t, version), "storm"+version[:1], workers)
}

// stormOver is a storm over a destination, by a mirror of that name.
func stormOver(t *testing.T, dst *kafkatest.Cluster, name string, workers int) *storm {
	src, _ := sites(t)
	s := &storm{t: t, src: src, dst: dst, mirror: name, kept: name + "-kept", committed: name + "-committed", lossy: name + "-lossy", others: name + "-of-others"}
	s.load, s.unwanted, s.reading = newBackground(t), newBackground(t), newBackground(t)
	for n := range workers {
		s.workers = append(s.workers, newMirroring(t, n, name, s.src, s.dst, []string{s.kept, s.committed, s.lossy}, []string{s.lossy}))
	}
	t.Cleanup(s.tell)
	return s
}

// tell shows what the workers said, of a test that failed.
func (s *storm) tell() {
	if s.t.Failed() {
		for n, w := range s.workers {
			s.t.Logf("worker %d:\n%s", n+1, strings.Join(w.said(""), "\n"))
		}
	}
}

// begin has everything under way.
func (s *storm) begin() {
	s.t.Helper()
	durable := map[string]string{"min.insync.replicas": "2"}
	s.src.CreateTopic(s.t, s.kept, keptParts, 3, durable)
	s.src.CreateTopic(s.t, s.committed, committedParts, 3, durable)
	s.dst.CreateTopic(s.t, s.others, 3, 3, durable)
	placed(s.t, s.src, s.lossy, lossyParts, 1, 2)
	s.load.writes(s.src, s.kept, keptParts, &s.written)
	s.load.transacts(s.src, s.committed, committedParts, &s.written)
	s.load.writes(s.src, s.lossy, lossyParts, &pulse{})
	s.unwanted.writes(s.dst, s.others, 3, &s.beside)
	for _, w := range s.workers {
		w.start()
	}
	for _, topic := range []string{s.kept, s.committed, s.lossy} {
		moving(s.t, s.dst, topic, nil)
	}
	readCommitted := kgo.FetchIsolationLevel(kgo.ReadCommitted())
	s.readers = []*follower{
		s.reading.follows(s.dst, "reader", s.kept, keptParts, &s.read),
		s.reading.follows(s.dst, "reader of committed records", s.committed, committedParts, &s.read, readCommitted),
	}
	s.source = []*follower{
		s.reading.follows(s.src, "source", s.kept, keptParts, nil),
		s.reading.follows(s.src, "source", s.committed, committedParts, nil, readCommitted),
	}
	if long() {
		s.java = s.dst.JavaFollow(s.t.Context(), s.t, kafkatest.ConsumeSpec{Topic: s.kept})
	}
	var ours []int32
	for id := s.workers[0].joined.IDs.First; len(ours) < len(s.workers); id++ {
		ours = append(ours, id)
	}
	s.intruders = s.unwanted.intrudes(s.dst, s.partitions(), ours)
	s.recovered(time.Now())
	s.whole()
	// From here on nobody has to be made a replica, for which the cluster's placement of new
	// partitions is open for a moment.
	s.neighbour = s.unwanted.neighbours(s.dst, s.mirror+"-other-")
}

func (s *storm) partitions() []cluster.Partition {
	return slices.Concat(partitions(s.kept, keptParts), partitions(s.committed, committedParts), partitions(s.lossy, lossyParts))
}

// recovered waits until all is read that was written up to a moment.
func (s *storm) recovered(moment time.Time) {
	s.t.Helper()
	kafkatest.Eventually(s.t, time.Minute, func(context.Context) error {
		for _, r := range s.readers {
			if err := r.past(moment); err != nil {
				return err
			}
		}
		return nil
	})
}

// whole waits until one worker leads everything and all are in sync again, so that any of
// them may be hit.
func (s *storm) whole() {
	s.t.Helper()
	cl := s.dst.Client(s.t, nimble...)
	kafkatest.Eventually(s.t, time.Minute, func(ctx context.Context) error {
		leader := int32(-1)
		for _, topic := range []string{s.kept, s.committed, s.lossy} {
			m, err := metadataOf(ctx, cl, topic)
			if err != nil {
				return err
			}
			for _, p := range m.Partitions {
				if leader < 0 {
					leader = p.Leader
				}
				if len(p.ISR) != len(s.workers) || p.Leader < 100 || p.Leader != leader {
					return fmt.Errorf("%s-%d: leader %d, in sync %v, replicas %v", topic, p.Partition, p.Leader, p.ISR, p.Replicas)
				}
			}
		}
		return nil
	})
}

// lead is the broker that leads the first partition.
func (s *storm) lead() int { return s.leader(s.dst.Client(s.t, nimble...), s.kept) }

// blow has one event happen, and measures what it costs.
func (s *storm) blow(n int, b blow) {
	s.t.Helper()
	still := s.while(fmt.Sprintf("%d: %v", n+1, b), func() { blows[b.kind].do(s, b) })
	s.costs.add(b, still)
	s.strays(b)
	limit := blows[b.kind].limit
	if !long() {
		limit *= 3 // other packages' clusters run beside this one
	}
	// How long plain writes waited says how busy the machine is; a take-over is several such steps.
	if limit > 0 && still.readers > limit+4*still.writers {
		s.t.Errorf("%v: readers stood still for %v, want at most %v", b, still.readers, limit)
	}
}

// while has something happen, waits until all is whole again, and says for how long things stood
// still meanwhile.
func (s *storm) while(what string, do func()) (still cost) {
	s.t.Helper()
	s.written.begin()
	s.read.begin()
	s.beside.begin()
	s.neighbour.begin()
	began, was := time.Now(), s.lead()
	do()
	over := time.Now()
	s.recovered(over)
	whole := time.Since(over)
	still.readers = s.read.longest()
	s.whole()
	if taken := s.intruders.taken.Load(); taken > 0 {
		s.t.Fatalf("%d writes to mirror topics were accepted: %v", taken, s.intruders.where)
	}
	still.writers, still.others = s.written.longest(), s.beside.longest()
	s.t.Logf("%s, led by %d and then by %d, took %v; stood still: readers %v, writers at the source %v, topics of others %v; all was read after %v",
		what, was, s.lead(), over.Sub(began).Round(10*time.Millisecond), still.readers, still.writers, still.others, whole.Round(10*time.Millisecond))
	return still
}

// end looks at what is left, and stops.
func (s *storm) end() {
	t := s.t
	t.Helper()
	s.load.end()
	for _, topic := range []string{s.kept, s.committed, s.lossy} {
		caughtUp(t, time.Minute, s.src, s.dst, topic)
	}
	s.unwanted.end()
	t.Logf("%d writes were tried, %d taken; %d topics of others created, %d were on us, %v at most",
		s.intruders.tries.Load(), s.intruders.taken.Load(), s.neighbour.made, len(s.neighbour.onUs), s.neighbour.longest)
	t.Logf("stood still for, by event:\n%v", &s.costs)
	if len(s.neighbour.onUs) > 0 && s.dst.Version() >= "4.3" {
		t.Errorf("topics of others were on us: %v", s.neighbour.onUs)
	}
	if s.intruders.tries.Load() == 0 || s.neighbour.made == 0 {
		t.Error("nobody tried to write, or to create topics")
	}
	if taken := s.intruders.taken.Load(); taken > 0 {
		t.Errorf("%d writes to mirror topics were accepted: %v", taken, s.intruders.where)
	}
	cl := s.src.Client(t, nimble...)
	for topic, n := range map[string]int32{s.kept: keptParts, s.committed: committedParts, s.lossy: lossyParts} {
		sameBytes(t, time.Minute, s.src, s.dst, s.leader(cl, topic), topic, n)
	}
	for _, w := range s.workers {
		for _, line := range w.said("truncated") {
			t.Log(line)
			if !strings.Contains(line, s.lossy) {
				t.Errorf("cut was what the source never lost: %s", line)
			}
		}
	}
	s.compare()
	s.stop()
	s.after()
}

// strays says what was wrong with topics of others: none is ever on us where the cluster can
// keep it off. Elsewhere each is off within a second, of which this takes five, and as long as
// the cluster does nothing for anybody, or the worker that has it is away.
func (s *storm) strays(b blow) {
	s.t.Helper()
	on, limit := s.neighbour.on(), s.beside.longest()
	if s.dst.Version() < "4.3" {
		limit += 5*time.Second + b.pause
		if !long() {
			limit += 10 * time.Second // other packages' clusters run beside this one
		}
	} else {
		limit = 0
	}
	if on > limit {
		s.t.Errorf("%v: a topic of others was on us for %v, want at most %v", b, on, limit)
	}
}

// compare has both sides read a last record, and compares what they have read.
func (s *storm) compare() {
	s.t.Helper()
	for i, r := range s.readers {
		last := make([]int64, len(r.saw))
		for p := range last {
			last[p] = write(s.t, s.src, r.topic, int32(p), 1)
		}
		for _, f := range []*follower{r, s.source[i]} {
			kafkatest.Eventually(s.t, time.Minute, func(context.Context) error { return f.upTo(last) })
		}
		r.sameAs(s.t, s.source[i])
		if s.java != nil && r.topic == s.kept {
			s.javaReads(last).sameAs(s.t, &follower{saw: s.source[i].saw[:1]})
		}
	}
}

// javaReads is what Java has read, once that is all up to the last records given.
func (s *storm) javaReads(last []int64) *follower {
	s.t.Helper()
	java := &follower{name: "Java's console consumer", topic: s.kept, saw: make([][]seen, 1)}
	kafkatest.Eventually(s.t, time.Minute, func(context.Context) error {
		java.saw[0] = nil
		for _, l := range s.java.Lines(s.t) {
			java.saw[0] = append(java.saw[0], seenAs(l.Offset, []byte(l.Key), []byte(l.Value)))
		}
		return java.upTo(last)
	})
	return java
}

// stop fails over: what is written then is read by those who read before.
func (s *storm) stop() {
	t := s.t
	t.Helper()
	began := time.Now()
	var stop []coordinator.Intent
	for _, topic := range []string{s.kept, s.committed, s.lossy} {
		stop = append(stop, coordinator.Intent{Topic: topic, Desired: coordinator.WantStopped})
	}
	if _, err := stateAt(t, s.dst).SaveIntents(t.Context(), s.mirror, stop); err != nil {
		t.Fatal(err)
	}
	cl := s.dst.Client(t, append(nimble, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	for _, p := range s.partitions() {
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			return cl.ProduceSync(ctx, &kgo.Record{Topic: p.Topic, Partition: p.Partition, Key: []byte("k"), Value: []byte("of an application")}).FirstErr()
		})
	}
	t.Logf("all could be written to %v after the stop was asked for", time.Since(began).Round(10*time.Millisecond))
}

// after has those who read before the stop read over it, and compares with who reads it all
// anew from the real leaders. Then the workers leave.
func (s *storm) after() {
	t := s.t
	t.Helper()
	for _, r := range s.readers {
		last := make([]int64, len(r.saw))
		for p := range last {
			last[p] = write(t, s.dst, r.topic, int32(p), 1)
		}
		var opts []kgo.Opt
		if r.topic == s.committed {
			opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		}
		anew := s.reading.follows(s.dst, "who reads anew", r.topic, int32(len(last)), nil, opts...)
		for _, f := range []*follower{r, anew} {
			kafkatest.Eventually(t, time.Minute, func(context.Context) error { return f.upTo(last) })
		}
		r.sameAs(t, anew)
		if s.java != nil && r.topic == s.kept {
			s.javaReads(last).sameAs(t, &follower{saw: anew.saw[:1]})
		}
	}
	s.reading.end()
	for _, w := range s.workers {
		w.process.Signal(syscall.SIGTERM)
		if err := w.process.Wait(timeout(t, 30*time.Second)); err != nil {
			t.Error(err)
		}
		w.leave()
	}
}

// metadataOf is what a cluster says of one topic.
func metadataOf(ctx context.Context, cl *kgo.Client, topic string) (kmsg.MetadataResponseTopic, error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	m, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	return m.Topics[0], kerr.ErrorForCode(m.Topics[0].ErrorCode)
}

// createPlain creates a topic as anybody does.
func createPlain(ctx context.Context, cl *kgo.Client, topic string, partitions int32, replicas int16) error {
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, partitions, replicas
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("%s: an answer was lost: %w", topic, err)
	}
	return err
}

// TestDrawn: a seed gives the same events each time, every kind before one comes again.
func TestDrawn(t *testing.T) {
	all := drawn(7, 50)
	if !slices.Equal(all, drawn(7, 50)) || slices.Equal(all, drawn(8, 50)) {
		t.Error("events do not go by the seed")
	}
	kinds := make(map[int]bool)
	for _, b := range all[:len(blows)] {
		kinds[b.kind] = true
		if k := blows[b.kind]; b.pause < k.from || b.pause > k.to || b.node < 1 || b.node > 3 {
			t.Errorf("%v", b)
		}
	}
	if len(kinds) != len(blows) {
		t.Errorf("%d kinds of %d in the first events", len(kinds), len(blows))
	}
	for _, b := range drawn(7, 6) {
		if b.kind >= 6 {
			t.Errorf("%v in the ordinary run", b)
		}
	}
}
