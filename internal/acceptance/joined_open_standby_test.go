package acceptance

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
)

// TestJoinedOpenStandby: with open availability the process that stands by is elected before any real
// broker. When both are dead a real broker leads, and readers go on; when they are back one of
// them leads again, and goes on where the log ends.
func TestJoinedOpenStandby(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			topic, name, n := "joined-open-standby-"+version[:1], "open-standby-"+version[:1], int32(4)
			src.CreateTopic(t, topic, n, 1, nil)
			stop := writer(t, src, topic, n, 0)
			two := make([]*mirroring, 2)
			for i := range two {
				two[i] = newMirroring(t, i, name, src, dst, []string{topic}, nil)
				two[i].joined.IDs, two[i].joined.Open = broker.IDs{First: 200, Last: 203}, true
				two[i].start()
			}
			led := func(by func(id int32) bool, inSync int) {
				t.Helper()
				ledAs(t, dst, topic, func(p kmsg.MetadataResponseTopicPartition) bool { return by(p.Leader) && len(p.ISR) == inSync })
			}
			us := func(id int32) bool { return id >= 200 }
			led(us, 5)
			r := read(t, dst, topic, n)
			r.calm()
			r.pause(n)

			if two[0].id() != leaders(t, dst, topic)[0] {
				slices.Reverse(two)
			}
			r.calm()
			two[0].process.Kill()
			stoodStill(t, "one is killed", r.pause(n))
			led(func(id int32) bool { return id == int32(two[1].id()) }, 4)
			refused(t, dst, cluster.Partition{Topic: topic})
			two[0].start()
			led(us, 5)

			for _, w := range two {
				w.process.Kill()
			}
			began := time.Now()
			led(func(id int32) bool { return 0 < id && id < 100 }, 3)
			late := read(t, dst, topic, n)
			var at []int64
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) (err error) {
				at, err = highWatermarks(ctx, dst.Client(t), topic)
				return err
			})
			readTo(t, late, n, slices.Min(at))
			late.end()
			t.Logf("read from real brokers %v after both were killed", time.Since(began))
			for _, w := range two {
				w.start()
			}
			led(us, 5)
			r.calm()
			t.Logf("both are back: records came %v after those before", r.pause(n))
			refused(t, dst, cluster.Partition{Topic: topic})
			stop()
			caughtUp(t, time.Minute, src, dst, topic)
			equal(t, src, dst, topic, n)
			sameBytes(t, time.Minute, src, dst, 1, topic, n)

			intent := []coordinator.Intent{{Topic: topic, Desired: coordinator.WantStopped}}
			if _, err := stateAt(t, dst).SaveIntents(t.Context(), name, intent); err != nil {
				t.Fatal(err)
			}
			led(func(id int32) bool { return 0 < id && id < 100 }, 3)
			put(t, dst, topic, 0, 1)
			r.end()
			for _, w := range two {
				w.process.Signal(syscall.SIGTERM)
				if err := w.process.Wait(timeout(t, 30*time.Second)); err != nil {
					t.Error(err)
				}
				w.leave()
			}
		})
	}
}
