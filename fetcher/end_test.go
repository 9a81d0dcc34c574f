package fetcher

import (
	"context"
	"errors"
	"testing"

	"github.com/clustermirror/mirror/cluster"
)

// TestSessionEndsWithAHeldRun: a run that waits for its epoch is given back once,
// also when its partition's removal has not been read yet.
func TestSessionEndsWithAHeldRun(t *testing.T) {
	f := New(newSource(t, 1), newDestination(t), newNotes(), Options{})
	s := newSession(f, 1)
	tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}}, 1)
	s.trackers[part(0)] = tr
	released, acked := 0, 0
	from := newResponse(func() { released++ }, 0)
	tr.held = newRun(s, tr, from)
	from.done() // the answer itself is done with
	r, next := tr.held, newResponse(func() { t.Error("the run was given back for its next owner") }, 0)
	s.box.put(message{remove: []cluster.Partition{part(9)}, ack: func() { r.from = next }}) // it was pooled, and is used again
	s.box.put(message{remove: []cluster.Partition{part(0)}, ack: func() { acked++ }})
	s.end()
	if released != 1 || acked != 1 {
		t.Errorf("released %d times, acknowledged %d times; want once each", released, acked)
	}
}

// TestLogThatGrewIsNotBuiltUpon: a log end above what was handed over is another
// worker's doing; nothing is fetched for it before it has been compared.
func TestLogThatGrewIsNotBuiltUpon(t *testing.T) {
	for _, c := range []struct {
		name string
		end  int64
		want error
	}{{"as handed over", 10, nil}, {"less has landed", 5, nil}, {"grown", 11, cluster.ErrFenced}} {
		t.Run(c.name, func(t *testing.T) {
			notes := newNotes()
			f := New(newSource(t, 1), newDestination(t), notes, Options{})
			s := newSession(f, 1)
			tr := newTracker(Assignment{Stretch: Stretch{Partition: part(0)}, Next: 10}, 1)
			s.trackers[part(0)], tr.phase = tr, learning
			s.onEnds(&learnt{trackers: []*tracker{tr}, ends: []End{{LogEnd: c.end}}})
			err := notes.failure(part(0))
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err != nil {
				var at *cluster.OffsetError
				if !errors.As(err, &at) || at.Span != (cluster.Span{From: 10, To: c.end}) || !cluster.Retriable(err) || s.mine(tr) {
					t.Errorf("error %v, still there: %v", err, s.mine(tr))
				}
				return
			}
			if tr.next != c.end || tr.phase != fetching {
				t.Errorf("goes on at %d in phase %v", tr.next, tr.phase)
			}
		})
	}
}

// TestAssignmentNobodyWants is not begun, and leaves the one before alone.
func TestAssignmentNobodyWants(t *testing.T) {
	f := New(newSource(t, 1), newDestination(t), newNotes(), Options{})
	f.assign(Assignment{Stretch: Stretch{Partition: part(0)}})
	before := f.where[part(0)]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.assign(Assignment{Stretch: Stretch{Partition: part(0)}, Context: ctx})
	f.assign(Assignment{Stretch: Stretch{Partition: part(1)}, Context: ctx})
	if f.where[part(0)] != before || f.where[part(1)] != nil || f.count.Load() != 1 {
		t.Errorf("%d places, the first is as before: %v", len(f.where), f.where[part(0)] == before)
	}
}
