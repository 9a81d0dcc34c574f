package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestPartitionOrder(t *testing.T) {
	ps := []Partition{{"b", 0}, {"a", 10}, {"a", 2}}
	slices.SortFunc(ps, Partition.Compare)
	if got := fmt.Sprint(ps); got != "[a-2 a-10 b-0]" {
		t.Error(got)
	}
}

func TestTopicID(t *testing.T) {
	if id := (TopicID{}); !id.IsZero() || id.String() != "AAAAAAAAAAAAAAAAAAAAAA" {
		t.Errorf("%v, zero %v", id, id.IsZero())
	}
	if (TopicID{15: 1}).IsZero() {
		t.Error("an id is not zero because it begins with zeros")
	}
}

func TestSpan(t *testing.T) {
	if s := (Span{3, 10}); s.Len() != 7 || s.String() != "[3,10)" {
		t.Errorf("%v has length %d", s, s.Len())
	}
	if n := (Span{5, 3}).Len(); n != 0 {
		t.Errorf("a span that ends before it begins has length %d", n)
	}
}

// TestRetriable: what an operator has to mend in the data or the topic is not
// tried again by itself; what time or the cluster mends is.
func TestRetriable(t *testing.T) {
	at := func(err error) error { return &OffsetError{Partition: Partition{"t", 0}, Span: Span{5, 6}, Err: err} }
	for _, err := range []error{ErrForeignWrite, ErrDisplaced, ErrDiverged, ErrTopicReplaced, ErrGap, errors.ErrUnsupported, ErrCompression} {
		if Retriable(fmt.Errorf("wrapped: %w", at(err))) {
			t.Errorf("%v is tried again", err)
		}
	}
	for _, err := range []error{ErrFenced, ErrUnreachable, ErrAuthorization, ErrTooLarge, ErrCorrupt, errors.New("unknown")} {
		if !Retriable(fmt.Errorf("wrapped: %w", at(err))) {
			t.Errorf("%v is not tried again", err)
		}
	}
	if Retriable(nil) || Retriable(context.Canceled) {
		t.Error("nothing, or an end that was asked for, is tried again")
	}
}

func TestOffsetErrorNamesThePlace(t *testing.T) {
	p := Partition{"orders", 3}
	for want, e := range map[string]*OffsetError{
		"orders-3 offset 5: gap in the source offsets":             {Partition: p, Span: Span{5, 6}, Err: ErrGap},
		"orders-3 offsets [5,9): gap in the source offsets: noted": {Partition: p, Span: Span{5, 9}, Err: ErrGap, Detail: "noted"},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
		if !errors.Is(e, ErrGap) {
			t.Error("the cause is lost")
		}
	}
}

// TestMembers (C7.5): in every state but those without members a group may not be moved.
func TestMembers(t *testing.T) {
	for state, want := range map[GroupState]bool{
		"Stable": true, "PreparingRebalance": true, "CompletingRebalance": true, "Assigning": true, "Reconciling": true, "NotReady": true,
		"of a release to come": true, "Empty": false, "Dead": false, "Unknown": false, "": false,
	} {
		if got := state.Members(); got != want {
			t.Errorf("%q: %v", state, got)
		}
	}
}
