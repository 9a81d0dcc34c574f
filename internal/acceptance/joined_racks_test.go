package acceptance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// answers counts the fetches that each broker has answered.
type answers struct {
	mu sync.Mutex
	of map[int32]int
}

// OnBrokerE2E is of kgo.HookBrokerE2E.
func (a *answers) OnBrokerE2E(b kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == 1 && e2e.Err() == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.of[b.NodeID]++
	}
}

// TestJoinedRacks: replicas of mirror topics lie in as many racks as a cluster has, with us in none
// of them; a consumer that says where it is and goes where it is sent reads from us or from its
// own rack; both stay so over the stop.
func TestJoinedRacks(t *testing.T) {
	racks := []string{"a", "a", "b"}
	for _, version := range patientVersions {
		t.Run(version, func(t *testing.T) {
			src, dst := source(t), kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3, Racks: racks, Config: map[string]string{
				"default.replication.factor": "2", "broker.session.timeout.ms": "3000",
				"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
			}})
			topic, n := "joined-racks-"+version[:1], int32(12)
			src.CreateTopic(t, topic, n, 1, nil)
			for p := range n {
				put(t, src, topic, p, 100)
			}
			us := &member{t: t, k: dst, first: 190}
			m := run(t, "joined-racks", connect(t, src), us.destination(), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, Store: coordinator.NewMemory()})
			complain(t, version, m)
			caughtUp(t, time.Minute, src, dst, topic)
			spread := func() {
				t.Helper()
				cl := dst.Client(t)
				for _, p := range partitions(topic, n) {
					reals, err := replicas(t.Context(), cl, p)
					if err != nil || len(reals) != 2 || !slices.Contains(reals, 3) {
						t.Errorf("%v lies on %v, all of rack a, or too few: %v", p, reals, err)
					}
				}
			}
			spread()
			for _, rack := range []string{"a", "b"} {
				seen := &answers{of: make(map[int32]int)}
				cl := dst.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack(rack),
					kgo.SoftwareNameAndVersion("apache-kafka-java", version), kgo.WithHooks(seen))
				ctx := timeout(t, time.Minute)
				for got := 0; got < 100*int(n); {
					fetches := cl.PollFetches(ctx)
					if err := fetches.Err(); err != nil {
						t.Fatalf("rack %s: %v after %d records", rack, err, got)
					}
					got += fetches.NumRecords()
				}
				cl.Close()
				t.Logf("rack %s: answered by %v", rack, seen.of)
				for id := range seen.of {
					if 0 < id && id < 100 && racks[id-1] != rack {
						t.Errorf("a consumer of rack %s was sent to broker %d in rack %s", rack, id, racks[id-1])
					}
				}
			}
			if err := m.Stop(timeout(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			m.end()
			us.away()
			spread()
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
				text, ps, err := placement(ctx, dst.Client(t), topic)
				for _, p := range ps {
					if p.Leader < 0 || p.Leader >= 100 || len(p.ISR) != 2 {
						err = fmt.Errorf("not whole:%s", text)
					}
				}
				return err
			})
		})
	}
}
