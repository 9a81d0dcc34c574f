package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/logdir"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// readAgain is a source that counts how often single places of it are read.
type readAgain struct {
	*kafka.Cluster
	reads atomic.Int32
}

func (r *readAgain) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	r.reads.Add(1)
	return r.Cluster.Read(ctx, p, offset, maxBytes)
}

// TestJoinedRefill: of two real replicas one is away while records are copied, then the disk
// of the other one is lost. What nobody has any more comes from the source again, in the
// same bytes; the empty replica has the rest from the other one.
func TestJoinedRefill(t *testing.T) {
	src := source(t)
	dst := kafkatest.Start(t, kafkatest.Options{Version: "4.4.0", Nodes: 3, Config: map[string]string{
		"default.replication.factor": "2", "broker.session.timeout.ms": "3000", "auto.leader.rebalance.enable": "false",
	}})
	const topic = "joined-refill"
	p := cluster.Partition{Topic: topic}
	src.CreateTopic(t, topic, 1, 1, nil)
	note(t, src, topic, "both", 200, 0)
	us, from := &member{t: t, k: dst, first: 100}, &readAgain{Cluster: connect(t, src)}
	one := func(c *broker.DestinationConfig) { c.Quorum, c.Window = 1, 1<<16 }
	m := run(t, topic, from, us.destination(one), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, Store: coordinator.NewMemory()})
	complain(t, "joined", m)
	caughtUp(t, time.Minute, src, dst, topic)
	sameBytes(t, time.Minute, src, dst, 1, topic, 1)
	real, err := replicas(t.Context(), dst.Client(t), p)
	if err != nil || len(real) != 2 {
		t.Fatalf("replicas %v, %v", real, err)
	}
	short, lost := int(real[0]), int(real[1])

	dst.Stop(short)
	last := note(t, src, topic, "one", 3000, 0)[0]
	onDisk(t, src, dst, lost, p, last[len(last)-1].Offset+1)
	dst.Stop(lost)
	if err := os.RemoveAll(filepath.Join(dst.LogDir(lost), topic+"-0")); err != nil {
		t.Fatal(err)
	}
	before := from.reads.Load()
	dst.Restart(short)
	began := time.Now()
	onDisk(t, src, dst, short, p, last[len(last)-1].Offset+1)
	t.Logf("the replica that was away is whole %v after its restart, with %d pieces of the source", time.Since(began), from.reads.Load()-before)
	if from.reads.Load() == before {
		t.Error("it had them from somewhere else")
	}
	dst.Restart(lost)
	began = time.Now()
	sameBytes(t, time.Minute, src, dst, 1, topic, 1)
	t.Logf("the replica that was lost is whole %v after its restart", time.Since(began))
	note(t, src, topic, "since", 10, 0)
	caughtUp(t, time.Minute, src, dst, topic)
	sameBytes(t, time.Minute, src, dst, 1, topic, 1)
	if err := m.Stop(timeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	put(t, dst, topic, 0, 10)
	m.end()
}

// onDisk waits until a broker has a partition up to an offset as the source has it.
func onDisk(t *testing.T, src, dst *kafkatest.Cluster, broker int, p cluster.Partition, end int64) {
	t.Helper()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		a, err := logdir.Read(src.LogDir(1), p)
		b, lacking := logdir.Read(dst.LogDir(broker), p)
		if err = errors.Join(err, lacking); err != nil {
			return err
		}
		if b.End() != end {
			return fmt.Errorf("%v on broker %d ends at %d, not at %d", p, broker, b.End(), end)
		}
		if diff := logdir.Diff(a, b); diff != "" {
			return fmt.Errorf("%v on broker %d: source and destination: %s", p, broker, diff)
		}
		return nil
	})
}
