package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// asks counts requests, and refuses those that change something.
func asks(t *testing.T, c *memory.Cluster) *atomic.Int32 {
	var n atomic.Int32
	c.SetFault(func(op memory.Op) memory.Fault {
		n.Add(1)
		switch op.Call {
		case memory.CallID, memory.CallTopics, memory.CallTopicConfigs, memory.CallOffsets, memory.CallGroups, memory.CallInspect:
		default:
			t.Errorf("a preflight asks for %s", op.Call)
		}
		return memory.Fault{}
	})
	return &n
}

func made(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func preflighted(t *testing.T, a mirror.Source, b mirror.Destination, o *mirror.Options) []string {
	t.Helper()
	r, err := mirror.Preflight(t.Context(), "dr", a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s: %s", f.Severity, f.Code, f))
	}
	return out
}

// TestPreflight: what the ends tell is judged, and nothing is changed.
func TestPreflight(t *testing.T) {
	a := memory.New(memory.Options{ID: "A", Defaults: known()})
	b := memory.New(memory.Options{ID: "B", Defaults: known(cluster.TopicConfig{Name: "retention.ms", Value: "86400000"})})
	for _, name := range []string{"fresh", "grown", "shrunk", "full"} {
		made(t, a.CreateTopic(cluster.NewTopic{Name: name, Partitions: 2}))
	}
	for name, n := range map[string]int32{"grown": 1, "shrunk": 3, "full": 2} {
		made(t, b.CreateTopic(cluster.NewTopic{Name: name, Partitions: n}))
	}
	full := cluster.Partition{Topic: "full", Partition: 1}
	if _, err := b.Produce(full, memory.Values("x")...); err != nil {
		t.Fatal(err)
	}
	o := &mirror.Options{Topics: mirror.Topics{Include: []string{"fresh", "grown", "shrunk", "full", "nowhere"}}}
	asks(t, a)
	asks(t, b)
	want := []string{
		"blocks not-empty: destination, topic full: its log ends behind the source's, and this mirror has nothing of it on record",
		"blocks partitions: destination, topic shrunk: it has 3 partitions, and 2 at the source",
		"loses retention: destination, topics full, grown, shrunk: retention.ms is 86400000, and 604800000 at the source",
		"warns topic-missing: source, topic nowhere: named, and not there",
	}
	if diff := cmp.Diff(want, preflighted(t, a, b, o)); diff != "" {
		t.Error(diff)
	}

	store := coordinator.NewMemory()
	o.Store = store
	rec := coordinator.Record{Partition: full, Appended: true, StateEpoch: 1, OwnerEpoch: 1}
	if err := store.Save(t.Context(), "dr", []coordinator.Record{rec})[0]; err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 0, 1)
	if diff := cmp.Diff(want, preflighted(t, a, b, o)); diff != "" {
		t.Errorf("on record: %s", diff)
	}
	if all, err := b.Topics(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("destination has %v, %v", all, err)
	}
}

// TestPreflightDead: a cluster that does not answer is a finding, and the other one is
// looked at all the same.
func TestPreflightDead(t *testing.T) {
	a, b := memory.New(memory.Options{ID: "A"}), memory.New(memory.Options{ID: "B"})
	made(t, a.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}))
	dead := func(memory.Op) memory.Fault {
		return memory.Fault{Kind: memory.LoseRequest, Err: errors.New("no route to host")}
	}
	o := &mirror.Options{Topics: mirror.Topics{Include: []string{"orders"}}}
	b.SetFault(dead)
	b.StopBroker(1)
	want := []string{"blocks unreachable: destination: the cluster cannot be asked: no route to host"}
	if diff := cmp.Diff(want, preflighted(t, a, b, o)); diff != "" {
		t.Error(diff)
	}
	a.SetFault(dead)
	b.SetFault(nil)
	want = []string{
		"blocks unreachable: source: the cluster cannot be asked: no route to host",
		"warns broker-unreachable: destination, broker 1 at memory:1: the advertised address cannot be used: broker unreachable: the broker is down",
	}
	if diff := cmp.Diff(want, preflighted(t, a, b, o)); diff != "" {
		t.Error(diff)
	}
}

// TestPreflightLoop: a mirror the other way that has not stopped is in the way.
func TestPreflightLoop(t *testing.T) {
	a, b := memory.New(memory.Options{ID: "A"}), memory.New(memory.Options{ID: "B"})
	made(t, a.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}))
	peers := coordinator.NewMemory()
	orders := cluster.Partition{Topic: "orders"}
	rec := coordinator.Record{Partition: orders, State: coordinator.StateMirroring, Sources: []string{"B"}, Appended: true, Aligned: true, StateEpoch: 1, OwnerEpoch: 1}
	if err := peers.Save(t.Context(), "back", []coordinator.Record{rec})[0]; err != nil {
		t.Fatal(err)
	}
	o := &mirror.Options{Topics: mirror.Topics{Include: []string{"orders"}}, Positions: peers}
	want := []string{`blocks other-mirror: destination, topic orders: another mirror of the topic is active: mirror "back" from here to the source has not stopped there`}
	if diff := cmp.Diff(want, preflighted(t, a, b, o)); diff != "" {
		t.Error(diff)
	}

	made(t, b.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1}))
	if _, err := b.Produce(orders, memory.Values("x", "y", "z")...); err != nil {
		t.Fatal(err)
	}
	rec.State, rec.StateEpoch, rec.HasPosition, rec.Position = coordinator.StateStopped, 2, true, cluster.Position{Offset: 2}
	if err := peers.Save(t.Context(), "back", []coordinator.Record{rec})[0]; err != nil {
		t.Fatal(err)
	}
	want = []string{`loses tail: destination, topic orders: 1 offset there never reached the source`}
	if diff := cmp.Diff(want, preflighted(t, a, b, o)); diff != "" {
		t.Errorf("stopped: %s", diff)
	}
}

// TestPreflightErrors: bad options are New's errors, and the end of the context is told.
func TestPreflightErrors(t *testing.T) {
	a, b := memory.New(memory.Options{ID: "A"}), memory.New(memory.Options{ID: "B"})
	if _, err := mirror.Preflight(t.Context(), "a b", a, b, nil); err == nil {
		t.Error("a bad name is taken")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mirror.Preflight(ended, "dr", a, b, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPreflightRequests: ten thousand topics are no more requests than a few.
func TestPreflightRequests(t *testing.T) {
	a, b := memory.New(memory.Options{ID: "A", Defaults: known()}), memory.New(memory.Options{ID: "B", Defaults: known()})
	for i := range 10_000 {
		made(t, a.CreateTopic(cluster.NewTopic{Name: fmt.Sprint("t", i), Partitions: 1}))
	}
	na, nb := asks(t, a), asks(t, b)
	r, err := mirror.Preflight(t.Context(), "dr", a, b, &mirror.Options{Topics: mirror.Topics{Include: []string{"t.*"}}})
	if err != nil || !r.Ready || r.Topics != 10_000 {
		t.Fatalf("%+v, %v", r, err)
	}
	if na.Load() > 8 || nb.Load() > 8 {
		t.Errorf("%d and %d requests", na.Load(), nb.Load())
	}
}
