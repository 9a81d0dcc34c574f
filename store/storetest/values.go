package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// mirror is the one that most cases store in.
const mirror = "a-to-b"

// record is a partition's first record, as a coordinator makes it.
func record(topic string, partition int32) coordinator.Record {
	return coordinator.Record{
		Partition: cluster.Partition{Topic: topic, Partition: partition}, State: coordinator.StateLogAlignment,
		Previous: coordinator.StateUnknown, Desired: coordinator.WantMirroring, OwnerEpoch: 1, StateEpoch: 1, Cut: -1,
	}
}

// at is r with other epochs.
func at(r coordinator.Record, owner, state int32) coordinator.Record {
	r.OwnerEpoch, r.StateEpoch = owner, state
	return r
}

// fill gives every field of v a value that is not zero, each another one. A kind of
// field that it does not know is an error: a case must not pass for want of a value.
func fill(v reflect.Value, n *int) error {
	*n++
	switch v.Interface().(type) {
	case coordinator.State:
		v.Set(reflect.ValueOf(coordinator.StateULERecovery))
		return nil
	case coordinator.Desired:
		v.Set(reflect.ValueOf(coordinator.WantPaused))
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n%255 + 1))
	case reflect.String:
		v.SetString(fmt.Sprint("value-", *n))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			if err := fillAll(n, key, value); err != nil {
				return err
			}
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		return fillAll(n, v.Index(0), v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			if err := fill(v.Index(i), n); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := fill(v.Field(i), n); err != nil {
				return fmt.Errorf("%s: %w", v.Type().Field(i).Name, err)
			}
		}
	default:
		return fmt.Errorf("no value is known for a field of type %s", v.Type())
	}
	return nil
}

func fillAll(n *int, values ...reflect.Value) error {
	for _, v := range values {
		if err := fill(v, n); err != nil {
			return err
		}
	}
	return nil
}

// full is a first record with no field left out.
func full(t *check) coordinator.Record {
	t.Helper()
	var r coordinator.Record
	n := 0
	if err := fill(reflect.ValueOf(&r).Elem(), &n); err != nil {
		t.Fatalf("Record: %v", err)
	}
	r.StateEpoch = 1
	return r
}

// extreme has values at the ends of what fields may hold.
func extreme() coordinator.Record {
	const most = int64(1<<63 - 1)
	r := record(strings.Repeat("t", 249), 1<<31-1)
	r.OwnerEpoch = 1<<31 - 1
	r.Reason = "line one\nline \"two\"\t\\ <a>&b </a> \u2028 \x00 日本語 🙂"
	r.State, r.Cut = coordinator.StateULERecovery, 0
	r.Position = cluster.Position{Epoch: -1, Offset: most}
	r.Epochs = []coordinator.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 1<<31 - 1, Start: most}}
	r.Restore = []cluster.GroupOffset{{Group: "grüße/\\\n", Offset: most, Metadata: "{\"a\":1}"}}
	r.Intent, r.Attempts = most, 1<<31-1
	return r
}

// load gives the mirror's records in the order of their partitions.
func load(t *check, s Store, mirror string) []coordinator.Record {
	t.Helper()
	records, err := s.Load(t.Context(), mirror)
	if err != nil {
		t.Fatalf("load %q: %v", mirror, err)
	}
	slices.SortFunc(records, func(a, b coordinator.Record) int { return a.Partition.Compare(b.Partition) })
	return records
}

// holds checks that the mirror has these records and no others.
func holds(t *check, s Store, mirror string, want ...coordinator.Record) {
	t.Helper()
	slices.SortFunc(want, func(a, b coordinator.Record) int { return a.Partition.Compare(b.Partition) })
	if diff := cmp.Diff(want, load(t, s, mirror), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("records of mirror %q (-want +got):\n%s", mirror, diff)
	}
}

// save stores records, all of which have to be taken.
func save(t *check, s Store, mirror string, records ...coordinator.Record) {
	t.Helper()
	errs := s.Save(t.Context(), mirror, records)
	if len(errs) != len(records) {
		t.Fatalf("save of %d records in %q gave %d answers", len(records), mirror, len(errs))
	}
	for i, err := range errs {
		if err != nil {
			t.Fatalf("save of %v (state epoch %d) in %q: %v", records[i].Partition, records[i].StateEpoch, mirror, err)
		}
	}
}

func saveIntents(t *check, s Store, mirror string, intents ...coordinator.Intent) {
	t.Helper()
	revisions, err := s.SaveIntents(t.Context(), mirror, intents)
	if err != nil || len(revisions) != len(intents) {
		t.Fatalf("save %d intents in %q: %d revisions, error %v", len(intents), mirror, len(revisions), err)
	}
	told := map[string]int64{}
	for i, in := range intents {
		told[in.Topic] = revisions[i]
	}
	for topic, in := range storedIntents(t, s, mirror) {
		if told, asked := told[topic]; asked && told != in.Revision {
			t.Errorf("the intent for %s in %q was told to have revision %d and has %d", topic, mirror, told, in.Revision)
		}
	}
}

// want is an intent to stop or pause a topic, without a revision.
func want(topic string, desired coordinator.Desired) coordinator.Intent {
	return coordinator.Intent{Topic: topic, Desired: desired}
}

// storedIntents are those that are stored now: the first piece of a watch.
func storedIntents(t *check, s Store, mirror string) map[string]coordinator.Intent {
	t.Helper()
	w := watch(t, s, mirror)
	defer w.end(t)
	return w.seen
}

// holdsIntents checks topics and what is wanted of them; revisions differ.
func holdsIntents(t *check, s Store, mirror string, want ...coordinator.Intent) {
	t.Helper()
	sameIntents(t, mirror, storedIntents(t, s, mirror), want)
}

func sameIntents(t *check, mirror string, got map[string]coordinator.Intent, want []coordinator.Intent) {
	t.Helper()
	byTopic := map[string]coordinator.Intent{}
	for _, in := range want {
		byTopic[in.Topic] = in
	}
	if diff := cmp.Diff(byTopic, got, cmpopts.IgnoreFields(coordinator.Intent{}, "Revision")); diff != "" {
		t.Errorf("intents of mirror %q (-want +got):\n%s", mirror, diff)
	}
}

// watcher reads a watch and checks what is true of each.
type watcher struct {
	ch     <-chan []coordinator.Intent
	cancel context.CancelFunc
	mirror string
	seen   map[string]coordinator.Intent
	last   int64 // highest revision in the pieces so far
}

// watch begins one and takes the first piece.
func watch(t *check, s Store, mirror string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := s.Watch(ctx, mirror)
	if err != nil {
		cancel()
		t.Fatalf("watch %q: %v", mirror, err)
	}
	w := &watcher{ch: ch, cancel: cancel, mirror: mirror, seen: map[string]coordinator.Intent{}}
	first := w.take(t)
	for _, in := range first {
		if _, twice := w.seen[in.Topic]; twice {
			t.Errorf("the first piece of mirror %q has topic %q twice", mirror, in.Topic)
		}
		if in.Revision <= 0 {
			t.Errorf("topic %q of mirror %q has revision %d", in.Topic, mirror, in.Revision)
		}
		w.seen[in.Topic] = in
		w.last = max(w.last, in.Revision)
	}
	return w
}

func (w *watcher) take(t *check) []coordinator.Intent {
	t.Helper()
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case piece, ok := <-w.ch:
		if !ok {
			t.Fatalf("the watch of mirror %q ended by itself", w.mirror)
		}
		return piece
	case <-timer.C:
		w.cancel()
		t.Fatalf("the watch of mirror %q gave nothing for %v; seen so far: %v", w.mirror, t.patience, w.seen)
	}
	return nil
}

// until reads changes until done says that all that was waited for is there.
func (w *watcher) until(t *check, done func(seen map[string]coordinator.Intent) bool) {
	t.Helper()
	for !done(w.seen) {
		for _, in := range w.take(t) {
			if in.Revision <= w.last {
				t.Errorf("mirror %q: revision %d of topic %q comes after %d", w.mirror, in.Revision, in.Topic, w.last)
			}
			w.seen[in.Topic], w.last = in, in.Revision
		}
	}
}

// end ends the watch and waits until the channel is closed.
func (w *watcher) end(t *check) {
	t.Helper()
	w.cancel()
	closes(t, w.ch)
}

func closes(t *check, ch <-chan []coordinator.Intent) {
	t.Helper()
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-timer.C:
			t.Fatalf("the channel of a watch that has ended is not closed after %v", t.patience)
		}
	}
}
