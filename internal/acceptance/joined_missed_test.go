package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/logdir"
	"github.com/clustermirror/mirror/transport/broker"
)

// lead has a destination run until end is called.
func lead(t *testing.T, d *broker.Destination) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// appendTen appends ten records that begin at an offset, in epoch 0.
func appendTen(t *testing.T, d *broker.Destination, p cluster.Partition, base int64) {
	t.Helper()
	b := one(base, 10, nil)
	done := make(chan error, 1)
	d.Append(p, []cluster.Batch{{Base: base, Next: base + 10, Bytes: b}}, nil, func(r fetcher.Result) { done <- r.Err })
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
}

// goOn begins, or goes on with, a stretch and gives where the log ends.
func goOn(t *testing.T, d *broker.Destination, p cluster.Partition, fresh bool) (end fetcher.End) {
	t.Helper()
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		ends, err := d.Ends(ctx, []fetcher.Stretch{{Mirror: "missed", Partition: p, New: fresh}})
		if err != nil {
			return err
		}
		end = ends[0]
		return end.Err
	})
	return end
}

// TestJoinedMissedCut: a replica is away when a log is cut, and comes back while the process
// that leads is dead. The log ends at the cut all the same, nothing having been written behind
// it, and the replica makes it.
func TestJoinedMissedCut(t *testing.T) {
	for _, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			dst := joinable(t, version)
			p := cluster.Partition{Topic: "joined-missed-" + version[:1]}
			us := &member{t: t, k: dst, first: 160}
			d := us.destination()
			end := lead(t, d)
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
				err := d.CreateTopics(ctx, []cluster.NewTopic{{Name: p.Topic, Partitions: 1, ReplicationFactor: 3}})[0]
				if errors.Is(err, cluster.ErrTopicExists) {
					return nil
				}
				return err
			})
			goOn(t, d, p, true)
			for base := int64(0); base < 100; base += 10 {
				appendTen(t, d, p, base)
			}
			endsAt(t, dst, p, 100, 1, 2, 3)
			dst.Stop(3)
			if err := d.Truncate(timeout(t, time.Minute), []fetcher.Cut{{Partition: p, Offset: 50}})[0]; err != nil {
				t.Fatal(err)
			}
			if all, err := us.overrides.Missed(t.Context()); err != nil || all[p.Topic].Cuts[0][3] != 50 || len(all[p.Topic].Cuts[0]) != 1 {
				t.Errorf("stored is %+v, %v", all, err)
			}
			end()

			dst.Restart(3) // it has nobody to ask
			endsAt(t, dst, p, 100, 3)
			d = us.destination()
			end = lead(t, d)
			if e := goOn(t, d, p, false); e.LogEnd != 50 {
				t.Errorf("the log ends at %d", e.LogEnd)
			}
			endsAt(t, dst, p, 50, 1, 2, 3)
			goOn(t, d, p, true)
			for base := int64(50); base < 80; base += 10 {
				appendTen(t, d, p, base)
			}
			endsAt(t, dst, p, 80, 1, 2, 3)
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
				all, err := us.overrides.Missed(ctx)
				if err == nil && len(all) > 0 {
					err = fmt.Errorf("%+v is still to be done", all)
				}
				return err
			})
			first, err := logdir.Read(dst.LogDir(1), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []int{2, 3} {
				other, err := logdir.Read(dst.LogDir(r), p)
				if diff := logdir.Diff(first, other); err != nil || diff != "" {
					t.Errorf("brokers 1 and %d: %s, %v", r, diff, err)
				}
			}
			if f, err := d.Fence(timeout(t, time.Minute), []fetcher.Stretch{{Mirror: "missed", Partition: p}}); err != nil || f[0].Err != nil {
				t.Errorf("%+v, %v", f, err)
			}
			if err := d.Leave(timeout(t, time.Minute)); err != nil {
				t.Error(err)
			}
			end()
		})
	}
}

// endsAt waits until the logs of brokers end at an offset.
func endsAt(t *testing.T, c *kafkatest.Cluster, p cluster.Partition, want int64, brokers ...int) {
	t.Helper()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		var got []int64
		for _, r := range brokers {
			l, err := logdir.Read(c.LogDir(r), p)
			if err != nil {
				return err
			}
			end := int64(0)
			for _, b := range l.Batches {
				end = max(end, b.Next)
			}
			got = append(got, end)
		}
		if slices.ContainsFunc(got, func(at int64) bool { return at != want }) {
			return fmt.Errorf("%v: logs of brokers %v end at %v, want %d", p, brokers, got, want)
		}
		return nil
	})
}
