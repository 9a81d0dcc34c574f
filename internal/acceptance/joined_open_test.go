package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
)

// ledAs waits until all partitions of a topic are led, and have those in sync, as is says.
func ledAs(t *testing.T, c *kafkatest.Cluster, topic string, is func(kmsg.MetadataResponseTopicPartition) bool) {
	t.Helper()
	cl := c.Client(t)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		text, ps, err := placement(ctx, cl, topic)
		if err == nil && (len(ps) == 0 || slices.ContainsFunc(ps, func(p kmsg.MetadataResponseTopicPartition) bool { return !is(p) })) {
			err = errors.New(text)
		}
		return err
	})
}

// TestJoinedOpen: with open availability real brokers lead when the only process is gone.
// Readers go on, and so would writers. When it is back it leads again what nobody has
// written to; what somebody has is FAILED, or given up where that is allowed.
func TestJoinedOpen(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			topic, written := "joined-open-"+version[:1], cluster.Partition{Topic: "joined-open-" + version[:1]}
			const n = int32(2)
			src.CreateTopic(t, topic, n, 1, nil)
			for p := range n {
				put(t, src, topic, p, 50)
			}
			us := &member{t: t, k: dst, first: 150}
			var tails bytes.Buffer
			var cut []cluster.Span
			var d *broker.Destination
			options := mirror.Options{
				Topics: mirror.Topics{Include: []string{topic}}, Store: coordinator.NewMemory(), RetryMax: 3 * time.Second,
				Salvage: func(_ context.Context, tail mirror.Tail) error {
					for b, err := range tail.Batches {
						if err != nil {
							return err
						}
						tails.Write(b)
					}
					return nil
				},
				Events: mirror.Events{Truncated: func(e mirror.TruncatedEvent) { cut = append(cut, e.Span) }},
			}
			begin := func() *running {
				d = us.destination(func(c *broker.DestinationConfig) { c.Availability = broker.Open })
				m := run(t, "joined-open", connect(t, src), d, options)
				complain(t, version, m)
				return m
			}
			open := func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == 150 && len(p.ISR) == 4 }
			real := func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader > 0 && p.Leader < 100 }
			m := begin()
			caughtUp(t, time.Minute, src, dst, topic)
			ledAs(t, dst, topic, open)
			refused(t, dst, written)
			r := read(t, dst, topic, n)
			readTo(t, r, n, 50)

			// We are out for a moment, and the source is idle: it is taken back all the same.
			if err := errors.Join(d.Membership().Fence(timeout(t, time.Minute), true), d.Membership().Fence(timeout(t, time.Minute), false)); err != nil {
				t.Fatal(err)
			}
			ledAs(t, dst, topic, open)
			for p := range n {
				put(t, src, topic, p, 10)
			}
			readTo(t, r, n, 60)

			m.end()
			for p := range n { // not mirrored before the end
				put(t, src, topic, p, 10)
			}
			began := time.Now()
			ledAs(t, dst, topic, real)
			late := read(t, dst, topic, n)
			readTo(t, late, n, 60)
			late.end()
			t.Logf("read from real brokers %v after the end", time.Since(began))
			r.end() // it would read what is cut later
			at := put(t, dst, topic, 0, 3)
			if at != 60 {
				t.Errorf("written at %d", at)
			}

			m = begin()
			e := m.event(time.Minute, "FAILED for good", func(e mirror.StateEvent) bool {
				return failed(e) && e.Partition == written && !cluster.Retriable(e.Err)
			})
			if !errors.Is(e.Err, cluster.ErrForeignWrite) || e.Offset != 60 {
				t.Errorf("written to, and %v at %d", e.Err, e.Offset)
			}
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
				_, ps, err := placement(ctx, dst.Client(t), topic)
				if err == nil && (!real(ps[0]) || !open(ps[1])) {
					err = fmt.Errorf("%+v", ps)
				}
				return err
			})
			if got := ends(t, dst, topic); got[0] != 63 {
				t.Errorf("partition 0 ends at %d", got[0])
			}
			m.end()

			options.DiscardLocalWrites = true
			m = begin()
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
				if states := m.Status().States; states[coordinator.StateFailed] == 0 {
					return fmt.Errorf("the failure is not known again: %v", states)
				}
				return m.Recover(ctx, topic)
			})
			caughtUp(t, time.Minute, src, dst, topic) // replicas may give the last records a moment later
			sameBytes(t, time.Minute, src, dst, 1, topic, n)
			ledAs(t, dst, topic, open)
			refused(t, dst, written)
			if err := m.Stop(timeout(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			put(t, dst, topic, 0, 10)
			m.end()
			if want := []cluster.Span{{From: 60, To: 63}}; !slices.Equal(cut, want) {
				t.Errorf("cut were %v, want %v", cut, want)
			}
			if tails.Len() == 0 {
				t.Error("nothing was saved of what was cut")
			}
			us.away()
		})
	}
}

// readTo waits until a reader has come to an offset in each partition.
func readTo(t *testing.T, r *reader, partitions int32, offset int64) {
	t.Helper()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for p := range partitions {
			if r.next[p] < offset {
				return fmt.Errorf("read up to %v, want %d", r.next, offset)
			}
		}
		return nil
	})
}
