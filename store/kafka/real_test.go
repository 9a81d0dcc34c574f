package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/google/go-cmp/cmp"
)

// TestRealKcat: another client reads what doc.go promises.
func TestRealKcat(t *testing.T) {
	t.Parallel()
	k := kafkatest.Shared(t, options(versions[0]))
	topic := unique()
	s := openAt(t, k.Bootstrap(), topic)
	first, second := record("orders", 3, 1), record("orders", 3, 2)
	mustSave(t, s, first)
	mustSave(t, s, second)
	if _, err := s.SaveIntents(t.Context(), raceMirror, []coordinator.Intent{{Topic: "orders", Desired: coordinator.WantPaused, Recover: true}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Define(t.Context(), coordinator.Definition{Name: raceMirror, Revision: 1, Include: []string{"orders.*"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Undefine(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lines := k.KcatConsume(ctx, t, kafkatest.ConsumeSpec{Topic: topic, Partition: kafkatest.AllPartitions})
	got := map[string]string{} // by key without the token
	partitions := map[string]int32{}
	for _, l := range lines {
		key := l.Key
		if !strings.HasPrefix(key, "intent/") {
			key = key[:strings.LastIndex(key, "/")]
		}
		got[key] = strings.ReplaceAll(l.Value, `\"`, `"`)
		partitions[key] = l.Partition
	}
	json2, err := json.Marshal(second)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"record/race/orders/3/1": kafkatest.Null, // superseded and deleted
		"record/race/orders/3/2": string(json2),
		"intent/race/orders":     `{"v":1,"topic":"orders","desired":"PAUSED","recover":true}`,
		"definition/race/1":      `{"v":1,"name":"race","revision":1,"source":null,"include":["orders.*"]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kcat reads (-want +got):\n%s", diff)
	}
	if p := partitions["record/race/orders/3/2"]; p != PartitionOf("race", second.Partition, 8) {
		t.Errorf("the record stands in partition %d", p)
	}
	if p := partitions["intent/race/orders"]; p != MirrorPartitionOf("race", 8) {
		t.Errorf("the intent stands in partition %d", p)
	}
}

// TestRealManyRecords measures what a worker of a hundred thousand partitions does at its
// start.
func TestRealManyRecords(t *testing.T) {
	const many = 100_000
	k := kafkatest.Shared(t, options(versions[0]))
	topic := unique()
	s := openAt(t, k.Bootstrap(), topic, func(c *Config) { c.Partitions = 0 })
	records := make([]coordinator.Record, 0, many)
	for i := range many {
		records = append(records, record(fmt.Sprint("topic-", i/100), int32(i%100), 1))
	}
	start := time.Now()
	mustSave(t, s, records...)
	saved := time.Since(start)
	start = time.Now()
	fresh := openAt(t, k.Bootstrap(), topic)
	if got := len(mustLoad(t, fresh)); got != many {
		t.Errorf("%d records loaded", got)
	}
	loaded := time.Since(start)
	start = time.Now()
	mustLoad(t, fresh)
	again := time.Since(start)
	start = time.Now()
	records[0].StateEpoch++
	mustSave(t, fresh, records[0])
	t.Logf("%d records: saved in %v, loaded in %v, again in %v; one more saved in %v", many, saved, loaded, again, time.Since(start))
	if loaded > 20*time.Second || saved > 30*time.Second {
		t.Error("that took too long")
	}
	for _, p := range k.Ends(t.Context(), t, topic) {
		if p == 0 {
			t.Error("a partition of the topic is empty")
		}
	}
}

// TestRealBrokerDies: writes go on when a leader is killed, and nothing is lost.
func TestRealBrokerDies(t *testing.T) {
	t.Parallel()
	k := kafkatest.Start(t, kafkatest.Options{Nodes: 3, Config: map[string]string{"broker.session.timeout.ms": "2000"}})
	topic := unique()
	s := openAt(t, k.Bootstrap(), topic)
	watched, err := s.Watch(t.Context(), raceMirror)
	if err != nil {
		t.Fatal(err)
	}
	<-watched
	const parts = 24
	saveAll := func(epoch int32) {
		t.Helper()
		var records []coordinator.Record
		for i := range int32(parts) {
			records = append(records, record("t", i, epoch))
		}
		mustSave(t, s, records...)
	}
	saveAll(1)
	k.Kill(2)
	start := time.Now()
	saveAll(2)
	t.Logf("the first write after a broker was killed took %v", time.Since(start))
	saveAll(3)
	if _, err := s.SaveIntents(t.Context(), raceMirror, []coordinator.Intent{{Topic: "t", Desired: coordinator.WantStopped}}); err != nil {
		t.Fatal(err)
	}
	if got := <-watched; len(got) != 1 || got[0].Topic != "t" {
		t.Errorf("watched %v", got)
	}
	got := mustLoad(t, openAt(t, k.Bootstrap(), topic))
	slices.SortFunc(got, func(a, b coordinator.Record) int { return a.Partition.Compare(b.Partition) })
	for i, r := range got {
		if r.StateEpoch != 3 || r.Partition != (cluster.Partition{Topic: "t", Partition: int32(i)}) {
			t.Errorf("%v is at epoch %d", r.Partition, r.StateEpoch)
		}
	}
	if len(got) != parts {
		t.Errorf("%d of %d records", len(got), parts)
	}
	k.Kill(3) // min.insync.replicas is 2 of 3: nothing can be written safely now
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Save(ctx, raceMirror, []coordinator.Record{record("t", 0, 4)})[0]; err == nil || errors.Is(err, coordinator.ErrConflict) {
		t.Errorf("a write to one of three replicas: %v", err)
	}
}
