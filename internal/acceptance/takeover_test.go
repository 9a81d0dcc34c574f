package acceptance

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// deaths are the blows to a worker that another one makes good.
var deaths = []struct {
	name   string
	kind   int // of blows
	pauses []time.Duration
}{
	{"back", 0, []time.Duration{0, 200 * time.Millisecond}},
	{"away", 7, []time.Duration{5 * time.Second}},
	{"frozen", 1, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
	{"frozen for long", 2, []time.Duration{5 * time.Second}},
	{"with a broker", 8, []time.Duration{time.Second}},
}

// TestTakeOvers: the worker that leads dies in each of the ways of a storm, and the log has
// when which step of the other's taking over was done. MIRROR_DEATHS names some of deaths.
func TestTakeOvers(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			s := newStorm(t, version, 2)
			s.begin()
			for range 2 {
				s.moveLeaders(blow{})
			}
			s.recovered(time.Now())
			var tips pulse
			s.reading.tips(s.dst, s.kept, keptParts, &tips)
			n := 0
			for _, d := range deaths {
				if only := os.Getenv("MIRROR_DEATHS"); only != "" && !slices.Contains(strings.Split(only, ","), d.name) {
					continue
				}
				for _, pause := range slices.Concat(d.pauses, d.pauses) {
					b := blow{kind: d.kind, node: 1 + n%3, pause: pause}
					began := time.Now()
					tips.begin()
					s.blow(n, b)
					t.Logf("%v: whoever asked anew saw no new record for %v\n%s", b, tips.longest(), s.timeline(began))
					n++
				}
			}
			t.Logf("stood still for, by event:\n%v", &s.costs)
			s.sameEpochs()
		})
	}
}

// sameEpochs waits until who leads says of all epochs before the last where they end, as the source does: a
// worker that has taken over finds out of those in its log when it leads already.
func (s *storm) sameEpochs() {
	s.t.Helper()
	src, dst := s.src.Client(s.t, nimble...), s.dst.Client(s.t, nimble...)
	kafkatest.Eventually(s.t, 30*time.Second, func(ctx context.Context) error {
		m, err := metadataOf(ctx, src, s.kept)
		if err != nil {
			return err
		}
		for _, p := range m.Partitions {
			for e := range p.LeaderEpoch {
				want, err := epochEnd(ctx, src, s.kept, p.Partition, e)
				if err != nil {
					return err
				}
				if got, err := epochEnd(ctx, dst, s.kept, p.Partition, e); err != nil || got != want {
					return fmt.Errorf("%s-%d: epoch %d ends at %v, at the source at %v: %w", s.kept, p.Partition, e, got, want, err)
				}
			}
		}
		return nil
	})
}

// epochEnd is where a leader says that an epoch ends.
func epochEnd(ctx context.Context, cl *kgo.Client, topic string, partition, epoch int32) (cluster.EpochEnd, error) {
	of := kmsg.NewOffsetForLeaderEpochRequestTopic()
	one := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	one.Partition, one.LeaderEpoch = partition, epoch
	of.Topic, of.Partitions = topic, append(of.Partitions, one)
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Topics = append(req.Topics, of)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return cluster.EpochEnd{}, err
	}
	p := resp.Topics[0].Partitions[0]
	return cluster.EpochEnd{Epoch: p.LeaderEpoch, EndOffset: p.EndOffset}, kerr.ErrorForCode(p.ErrorCode)
}

// tips asks each time anew where partitions end, and beats when that has risen. It does not wait for
// a process that is frozen, as the client of a reader does that has asked it before.
func (b *background) tips(c *kafkatest.Cluster, topic string, partitions int32, risen *pulse) {
	cl := c.Client(b.t, nimble...)
	ends := make([]int64, partitions)
	b.every(50*time.Millisecond, func(ctx context.Context, _ int) {
		ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		defer cancel()
		of := kmsg.NewListOffsetsRequestTopic()
		of.Topic = topic
		for p := range partitions {
			one := kmsg.NewListOffsetsRequestTopicPartition()
			one.Partition, one.Timestamp = p, -1
			of.Partitions = append(of.Partitions, one)
		}
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID, req.Topics = -1, append(req.Topics, of)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil || len(resp.Topics) == 0 {
			return
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode == 0 && p.Offset > ends[p.Partition] {
				ends[p.Partition] = p.Offset
				risen.beat(cluster.Partition{Topic: topic, Partition: p.Partition})
			}
		}
	})
}

// timeline is what the workers have said since a moment, and which readers stood still.
func (s *storm) timeline(began time.Time) string {
	type said struct {
		at   time.Time
		text string
	}
	var all []said
	for n, w := range s.workers {
		for _, p := range w.lives {
			for _, line := range p.Lines() {
				stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "time="), " ")
				at, err := time.Parse(time.RFC3339Nano, stamp)
				if ok && err == nil && !at.Before(began) {
					all = append(all, said{at, fmt.Sprintf("worker %d: %s", n+1, rest)})
				}
			}
		}
	}
	for p, gap := range s.read.gaps() {
		all = append(all, said{gap.to, fmt.Sprintf("%v: readers stood still for %v", p, gap.to.Sub(gap.from).Round(time.Millisecond))})
	}
	slices.SortStableFunc(all, func(a, b said) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var b strings.Builder
	for _, line := range all {
		fmt.Fprintf(&b, "%+.3f %s\n", line.at.Sub(began).Seconds(), line.text)
	}
	return b.String()
}
