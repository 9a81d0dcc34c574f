package acceptance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// failoverBar is how long a failover may take until the last partition is written to. A
// test on a shared machine fails at five times that.
const failoverBar = 10 * time.Second

// TestJoinedFailoverOfMany: partitions are stopped all at once, every tenth with a
// transaction that the source has left open, and each can be written to.
func TestJoinedFailoverOfMany(t *testing.T) {
	const each = 50
	dst := joinable(t, joinedVersions[0])
	logs := make(map[cluster.Partition][][]byte)
	now := time.Now().UnixMilli()
	recent := func(base int64, change func(s *batch.Spec)) []byte {
		return one(base, 5, func(s *batch.Spec) {
			for i := range s.Records { // behind old ones every broker begins a new segment with the first record
				s.Records[i].Timestamp = now + base + int64(i)
			}
			change(s)
		})
	}
	for n := range sized(50, 1000) {
		log := [][]byte{recent(0, func(*batch.Spec) {}), recent(5, func(s *batch.Spec) { s.Producer = &batch.Producer{ID: 4} })}
		if n%10 == 0 {
			log = append(log, recent(10, func(s *batch.Spec) {
				s.Producer, s.Attributes = &batch.Producer{ID: int64(5 + n)}, batch.AttrTransactional
			}))
		}
		logs[cluster.Partition{Topic: fmt.Sprintf("joined-many-%02d", n/each), Partition: int32(n % each)}] = log
	}
	us := &member{t: t, k: dst, first: 130}
	began := time.Now()
	m := run(t, "joined-many", stocked(t, logs).Client("joined-many"), us.destination(), mirror.Options{
		Topics: mirror.Topics{Include: []string{"joined-many-.*"}}, Store: coordinator.NewMemory(),
	})
	complain(t, "joined-many", m)
	for p, log := range logs {
		if err := m.WaitMirrored(timeout(t, 2*time.Minute), p, batch.Header(log[len(log)-1]).Next()-1); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d partitions are mirrored after %v", len(logs), time.Since(began))

	began = time.Now()
	if err := m.Stop(timeout(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	stopped := time.Since(began)
	cl := dst.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	var records []*kgo.Record
	for p := range logs {
		records = append(records, &kgo.Record{Topic: p.Topic, Partition: p.Partition, Value: []byte("after the failover")})
	}
	for _, r := range cl.ProduceSync(timeout(t, time.Minute), records...) {
		p := cluster.Partition{Topic: r.Record.Topic, Partition: r.Record.Partition}
		log := logs[p]
		at := batch.Header(log[len(log)-1]).Next()
		if len(log) == 3 {
			at++ // the marker of the transaction
		}
		if r.Err != nil || r.Record.Offset != at {
			t.Errorf("%v: written at %d, want %d: %v", p, r.Record.Offset, at, r.Err)
		}
	}
	took := time.Since(began)
	t.Logf("%d partitions: stopped in %v, all of them written to after %v; bar %v", len(logs), stopped, took, failoverBar)
	if took > 5*failoverBar {
		t.Errorf("%v until all were written to: five times the bar", took)
	}
	m.end()
	us.away()
	if long() {
		t.Logf("what of it is the cluster's own: with other leaders elected, without us, all are written to after %v", ownElection(t, dst, cl, records))
	}
}

// ownElection has the next replica of each partition lead, as an operator would, and writes to all.
func ownElection(t *testing.T, dst *kafkatest.Cluster, cl *kgo.Client, records []*kgo.Record) time.Duration {
	t.Helper()
	topics := make(map[string]struct{})
	var again []*kgo.Record
	for _, r := range records {
		topics[r.Topic] = struct{}{}
		again = append(again, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Value: r.Value})
	}
	began := time.Now()
	for topic := range topics {
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			m, err := metadataOf(ctx, cl, topic)
			if err == nil {
				err = rotate(ctx, cl, m)
			}
			return err
		})
	}
	if err := cl.ProduceSync(timeout(t, time.Minute), again...).FirstErr(); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}
