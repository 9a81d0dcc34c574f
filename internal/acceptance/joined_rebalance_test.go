package acceptance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// leadership counts how often a partition got another leader.
type leadership struct {
	mu      sync.Mutex
	last    map[int32]int32
	changes int
	end     func()
}

func watchLeaders(t *testing.T, c *kafkatest.Cluster, topic string) *leadership {
	t.Helper()
	cl := c.Client(t)
	l := &leadership{last: make(map[int32]int32)}
	b := newBackground(t)
	l.end = b.end
	b.every(20*time.Millisecond, func(ctx context.Context, _ int) {
		_, ps, err := placement(ctx, cl, topic)
		if err != nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range ps {
			if p.Leader < 0 {
				continue
			}
			if was, ok := l.last[p.Partition]; ok && was != p.Leader {
				l.changes++
			}
			l.last[p.Partition] = p.Leader
		}
	})
	return l
}

func (l *leadership) since() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.changes
	l.changes = 0
	return n
}

// TestJoinedRebalance: the controller gives leadership back to the first replica every second
// (auto.leader.rebalance.enable). The first of two workers is killed, comes back and has its turn
// again by that; then nothing moves any more. Nothing is lost, read twice, or written by others.
func TestJoinedRebalance(t *testing.T) {
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3, Config: map[string]string{
				"default.replication.factor": "3", "broker.session.timeout.ms": "3000", "auto.leader.rebalance.enable": "true",
				"leader.imbalance.check.interval.seconds": "1", "leader.imbalance.per.broker.percentage": "0",
			}})
			topic, name, n := "joined-rebalance-"+version[:1], "rebalance-"+version[:1], int32(4)
			src.CreateTopic(t, topic, n, 1, nil)
			stop := writer(t, src, topic, n, 0)
			first := standUp(t, name, "first", src, dst, topic, 180)
			ledBy(t, dst, topic, 180, 180)
			second := standUp(t, name, "second", src, dst, topic, 180)
			ledBy(t, dst, topic, 180, 180, 181)
			r, moves := read(t, dst, topic, n), watchLeaders(t, dst, topic)
			for round := range 2 {
				r.calm()
				first.Kill()
				stoodStill(t, "killed", r.pause(n))
				ledBy(t, dst, topic, 181, 181)
				r.calm()
				first = standUp(t, name, "first", src, dst, topic, 180)
				ledBy(t, dst, topic, 180, 180, 181) // the controller has moved it back
				second.WaitLine(timeout(t, 30*time.Second), "superseded")
				stoodStill(t, "moved back", r.pause(n))
				t.Logf("round %d: %d changes of %d partitions' leaders", round+1, moves.since(), n)
				for range 10 { // records of half a second each, and several looks of the controller
					r.calm()
					r.pause(n)
				}
				if more := moves.since(); more > 0 {
					t.Errorf("round %d: %d changes of leaders while nothing happened", round+1, more)
				}
			}
			moves.end()
			stop()
			caughtUp(t, time.Minute, src, dst, topic)
			equal(t, src, dst, topic, n)
			sameBytes(t, time.Minute, src, dst, 1, topic, n)
			refused(t, dst, partitions(topic, n)[0])
			r.end()
		})
	}
}
