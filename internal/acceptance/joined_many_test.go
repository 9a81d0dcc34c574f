package acceptance

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestJoinedStandbyOfMany: the worker that leads 300 partitions is killed, and then the one that
// has taken over while the first is back. All of them are read on soon.
func TestJoinedStandbyOfMany(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), joinable(t, version)
			topic, name, n := "joined-standby-many-"+version[:1], "many-"+version[:1], int32(300)
			src.CreateTopic(t, topic, n, 1, nil)
			trickle := newBackground(t)
			from := src.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
			trickle.every(200*time.Millisecond, func(ctx context.Context, _ int) {
				for p := range n {
					from.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(padding)}, nil)
				}
			})
			first := standUp(t, name, "first", src, dst, topic, 195)
			ledBy(t, dst, topic, 195, 195)
			second := standUp(t, name, "second", src, dst, topic, 195)
			ledBy(t, dst, topic, 195, 195, 196)
			r := read(t, dst, topic, n)
			r.calm()
			t.Logf("nothing happens: readers of %d partitions stand still for %v", n, r.pause(n))
			r.calm()
			first.Kill()
			stoodStill(t, "killed", r.pause(n))
			ledBy(t, dst, topic, 196, 196)
			standUp(t, name, "first", src, dst, topic, 195)
			ledBy(t, dst, topic, 196, 195, 196)
			r.calm()
			second.Kill()
			stoodStill(t, "killed, the other way", r.pause(n))
			ledBy(t, dst, topic, 195, 195)
			trickle.end()
			from.Flush(t.Context())
			caughtUp(t, time.Minute, src, dst, topic)
			sameBytes(t, time.Minute, src, dst, 1, topic, n)
			r.end()
		})
	}
}
