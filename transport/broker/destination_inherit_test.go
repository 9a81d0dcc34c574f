package broker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/epoch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestInherits: from another of ours, and nobody in between.
func TestInherits(t *testing.T) {
	us := party{Self: Self{Broker: 100}, ids: IDs{100, 102}}
	for _, tt := range []struct {
		name        string
		before, now metalog.Partition
		want        bool
	}{
		{"from another of ours", metalog.Partition{Leader: 101, LeaderEpoch: 4}, metalog.Partition{Leader: 100, LeaderEpoch: 5}, true},
		{"somebody may have led in between", metalog.Partition{Leader: 101, LeaderEpoch: 4}, metalog.Partition{Leader: 100, LeaderEpoch: 6}, false},
		{"nobody led", metalog.Partition{Leader: -1, LeaderEpoch: 4}, metalog.Partition{Leader: 100, LeaderEpoch: 5}, false},
		{"from a real one", metalog.Partition{Leader: 1, LeaderEpoch: 4}, metalog.Partition{Leader: 100, LeaderEpoch: 5}, false},
		{"from ourselves", metalog.Partition{Leader: 100, LeaderEpoch: 4}, metalog.Partition{Leader: 100, LeaderEpoch: 5}, false},
		{"to another", metalog.Partition{Leader: 101, LeaderEpoch: 4}, metalog.Partition{Leader: 102, LeaderEpoch: 5}, false},
	} {
		if got := inherits(us, &tt.before, &tt.now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestEpochless: such a log is not read again and again.
func TestEpochless(t *testing.T) {
	for _, tt := range []struct {
		name    string
		found   scanned
		history epoch.History
		want    bool
	}{
		{"empty", scanned{start: 5, end: 5, proven: true}, nil, true},
		{"of old formats", scanned{start: 5, end: 9, high: 9}, nil, true},
		{"not read", scanned{start: 5}, nil, false},
		{"nothing can be read yet", scanned{start: 5, end: 9, high: 5}, nil, false},
		{"with epochs", scanned{start: 5, end: 9, high: 9}, epoch.History{{Epoch: 1, Start: 5}}, false},
	} {
		if got := epochless(tt.found, tt.history); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestInheritedIsLedAtOnce: of a log that comes from another of ours no replica is asked before its
// followers are answered, and it goes on without a comparison. Which epochs are in it is still
// looked for. One that somebody else may have led is looked into, and compared.
func TestInheritedIsLedAtOnce(t *testing.T) {
	for epoch, want := range map[int32]bool{5: true, 6: false} {
		f := startFake(t, 1, metalog.NewTopic{Name: "t", ID: strayID.Topic},
			metalog.NewPartition{ID: strayID, Partition: metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{101, 100}, Leader: 101, LeaderEpoch: 4}})
		store := &MemoryOverrides{all: map[string]Own{"t": {}}}
		logged := new(lines)
		d := &Destination{m: seated(t, f, nil), server: &Server{haste: newHaste(), led: newRegistry()}, own: newOwnTopics(store), missed: newMissed(store),
			lifts: newLifts(store), scans: make(chan struct{}, 1), cfg: DestinationConfig{Logger: slog.New(logged)},
			held: make(map[cluster.Partition]*holding), led: make(map[metalog.PartitionID]*holding)}
		if err := d.own.recall(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var opening sync.WaitGroup
		d.seen = d.m.log.Image()
		leader := int32(100)
		for range epoch - 4 {
			f.Append(metalog.ChangePartition{ID: strayID, Leader: &leader})
		}
		heard(t, f, d.m)
		d.look(ctx, &opening, d.m.log.Image(), strayID)
		p := cluster.Partition{Topic: "t", Partition: strayID.Partition}
		h := d.holding(p)
		var led *lead.Partition
		kafkatest.Eventually(t, 10*time.Second, func(context.Context) (err error) { led, err = h.lead(); return err })
		if got := logged.n.Load(); want && got != 1 { // that we lead it
			t.Errorf("epoch %d: %d lines, so a replica was asked before it was led", epoch, got)
		}
		led.Fetch(lead.Fetch{Replica: 1, CurrentEpoch: led.Epoch(), Offset: 9, LastEpoch: 2, LogStart: 3, MaxBytes: 1})
		var e fetcher.End
		h.begin(mirrorOf("a"), &e)
		if e.Inherited != want || e.LogEnd != 9 || want && e.LogStart != 3 {
			t.Errorf("epoch %d: %+v", epoch, e)
		}
		select {
		case <-h.learning:
			t.Error("learned, and nobody was asked")
		default:
		}
		cancel()
		opening.Wait()
		d.closeAll(cluster.ErrUnavailable)
	}
}
