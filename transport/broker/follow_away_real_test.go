package broker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestRealFollowerWasAway: a real broker that stands behind our window gets what it
// lacks from the other one, and where that does not give it, from the source; while
// another partition goes on.
func TestRealFollowerWasAway(t *testing.T) {
	for _, version := range newest() {
		t.Run(version, func(t *testing.T) {
			k := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3})
			us := join(t, k, Config{IDs: IDs{100, 100}, Identities: new(MemoryIdentities),
				Ours: func(topic string, _ cluster.TopicID, _ int32) bool { return strings.HasPrefix(topic, "led") }})
			if err := us.WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			var reads, refills atomic.Int32
			refuse := new(atomic.Bool)
			real := us.server.read
			us.server.read = func(ctx context.Context, replica int32, p lackingPiece) ([]byte, int64, error) {
				if refuse.Load() {
					return nil, 0, errors.New("refused by the test")
				}
				reads.Add(1)
				return real(ctx, replica, p)
			}
			var log [][]byte
			us.server.cfg.Refill = func(_ context.Context, _ cluster.TopicID, partition int32, offset int64, max int32) (b []byte, _ error) {
				refills.Add(1)
				for _, one := range log {
					if batch.Header(one).Next() > offset && len(b) < int(max) {
						b = append(b, one...)
					}
				}
				return b, nil
			}
			l := placeLed(t, k, us, "led", 2, 1)
			next := int64(0)
			grow := func() {
				for range 120 {
					log = append(log, l.add(0, batchAt(next, 1000, 1))...)
					next += 1010 // and a gap
				}
			}
			grow()
			for round, from := range []*atomic.Int32{&reads, &refills} {
				k.Stop(2)
				grow()
				refuse.Store(round == 1)
				before := from.Load()
				k.Restart(2)
				began := time.Now()
				l.holds(0, 0, next-10, log...)
				t.Logf("round %d: whole %v after the restart, %d pieces read elsewhere", round, time.Since(began), from.Load()-before)
				if from.Load() == before {
					t.Error("it had it from somewhere else")
				}
			}
			other := l.add(1, batchAt(0, 10, 1))
			l.holds(1, 0, 10, other...)
		})
	}
}
