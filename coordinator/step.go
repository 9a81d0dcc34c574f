package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// ErrUnfit: the event does not fit the state the partition is in.
var ErrUnfit = errors.New("event does not fit the state")

// step is the whole state machine: what becomes of a record when something
// happens, and what is to be done once that is stored. It is pure. An event
// that changes nothing, or is refused, gives the record back as it was.
// StateEpoch is left to the writer.
func step(rec Record, ev Event) (Record, []Effect, error) {
	next, effects, err := take(rec, ev)
	if err != nil {
		return rec, nil, err
	}
	return next, effects, nil
}

func take(rec Record, ev Event) (Record, []Effect, error) {
	switch ev.Kind {
	case EventWant:
		return want(rec, ev)
	case EventFailed:
		return fail(rec, ev)
	case EventRecover:
		rec.Intent = max(rec.Intent, ev.Revision)
		if rec.State != StateFailed {
			return rec, nil, nil
		}
		rec.Attempts = 0
		return enter(rec, retryTarget(rec))
	case eventRetryDue:
		if rec.State != StateFailed || !rec.Retriable {
			return rec, nil, nil
		}
		return enter(rec, retryTarget(rec))
	case eventTakeOver:
		rec.OwnerEpoch++
		return reenter(rec)
	case eventReconsider:
		return reenter(rec)
	case EventProgress:
		if rec.State == StateMirroring {
			rec = forgive(rec)
			rec.Appended = true
		}
		return rec, nil, nil
	case EventEpochSeen:
		return epochSeen(rec, ev)
	case EventPositionRead:
		if rec.State != StateStopping || ev.Position == nil {
			return unfit(rec, ev)
		}
		rec.Position, rec.HasPosition = *ev.Position, true
		return rec, nil, nil
	case EventSourcesSeen:
		if rec.State == StateMirroring && len(ev.Sources) > 0 {
			rec.Sources = ev.Sources
		}
		return rec, nil, nil
	case EventRestored:
		if rec.State != StateMirroring && rec.State != StateStopping && rec.State != StateStopped {
			return rec, nil, nil // another rebuild has begun, and takes again what was given back
		}
		rec.Restore = slices.DeleteFunc(slices.Clone(rec.Restore), func(o cluster.GroupOffset) bool { return o.Offset <= ev.Start })
		return rec, nil, nil
	case EventForget:
		if rec.State != StateStopped && rec.State != StateUnknown {
			return unfit(rec, ev)
		}
		return rec, nil, nil
	}
	return finish(rec, ev)
}

// finish takes the events that end what a state does.
func finish(rec Record, ev Event) (Record, []Effect, error) {
	switch {
	case ev.Kind == EventAligned && rec.State == StateLogAlignment:
		return aligned(rec, ev)
	case ev.Kind == EventRaiseNeeded && rec.State == StateMirroring:
		return enter(rec, StateEpochFencing)
	case ev.Kind == EventEpochRaised && rec.State == StateEpochFencing:
		return enter(rec, StateMirroring)
	case ev.Kind == EventCutNeeded && ev.Cut >= 0:
		return cutNeeded(rec, ev)
	case ev.Kind == EventCutDone && rec.State == StateULERecovery:
		rec.Epochs = rec.Epochs.TruncateFrom(rec.Cut)
		rec.Cut, rec.RebuildOf, rec.RebuildAs = noCut, cluster.TopicID{}, nil
		return aligned(rec, ev)
	case ev.Kind == EventDrained && rec.State == StatePausing:
		return settle(forgive(rec), StatePaused)
	case ev.Kind == EventStopped && rec.State == StateStopping:
		if ev.Position != nil {
			rec.Position, rec.HasPosition = *ev.Position, true
		}
		// A cut that was owed is void: the next stretch is aligned anew.
		rec.Cut, rec.RebuildOf, rec.RebuildAs = noCut, cluster.TopicID{}, nil
		return settle(forgive(rec), StateStopped)
	}
	return unfit(rec, ev)
}

// aligned ends an alignment, or a cut, which is one too.
func aligned(rec Record, ev Event) (Record, []Effect, error) {
	rec.Aligned, rec.HasPosition, rec.Position = true, false, cluster.Position{}
	if ev.How != "" {
		rec.Alignment = ev.How
	}
	if ev.Sources != nil {
		rec.Sources = ev.Sources
	}
	if ev.Epochs != nil {
		if !ev.Epochs.Valid() {
			return rec, nil, fmt.Errorf("%v: history goes back: %v", rec.Partition, ev.Epochs)
		}
		rec.Epochs, rec.Unproven = ev.Epochs, ev.Unproven
	}
	return enter(rec, StateMirroring)
}

// cutNeeded writes a cut down before it is made (I8). A rebuild of the topic takes
// all of its partitions along; one that is paused or has failed is cut when it goes on, and
// one that was to be cut already keeps what it has found.
func cutNeeded(rec Record, ev Event) (Record, []Effect, error) {
	rebuild := !ev.RebuildOf.IsZero()
	switch {
	case rec.State == StateMirroring, rec.State == StateLogAlignment:
	case rec.State == StateULERecovery && ev.Cut < rec.Cut: // the logs part further back
	case rebuild && rec.State == StateULERecovery && rec.RebuildOf == ev.RebuildOf:
		return rec, nil, nil // under way
	case rebuild && (rec.State == StateULERecovery || rec.State == StatePaused || rec.State == StateFailed && !rec.stopUnfinished()):
	default:
		return unfit(rec, ev)
	}
	if ev.How != "" {
		rec.Alignment = ev.How
	}
	if rec.Cut < 0 || ev.Cut < rec.Cut {
		rec.Cut = ev.Cut
	}
	if rebuild {
		rec.RebuildOf, rec.RebuildAs, rec.Restore = ev.RebuildOf, ev.RebuildAs, owed(rec.Restore, ev.Restore, rec.Cut)
	}
	if rec.State == StatePaused || rec.State == StateFailed {
		return rec, nil, nil // it comes to that when it goes on
	}
	return enter(rec, StateULERecovery)
}

// owed is what a rebuild takes from groups, and what an earlier one has not given back
// yet, no further than the cut, which may be known from before.
func owed(before, now []cluster.GroupOffset, cut int64) []cluster.GroupOffset {
	all := slices.Clone(now)
	for _, o := range before {
		if !slices.ContainsFunc(now, func(n cluster.GroupOffset) bool { return n.Group == o.Group }) {
			all = append(all, o)
		}
	}
	for i := range all {
		all[i].Offset = min(all[i].Offset, cut)
	}
	return all
}

// fail takes an error. A stopped topic is an ordinary topic: nothing of ours
// can go wrong there.
func fail(rec Record, ev Event) (Record, []Effect, error) {
	if ev.Err == nil || rec.State == StateStopped {
		return unfit(rec, ev)
	}
	if ev.Seq == 0 && rec.stopUnfinished() {
		return rec, nil, nil // not the stop's own trouble: it must not keep the topic from being stopped
	}
	// An effect that was cancelled and yet not superseded says nothing about the
	// clusters: it is tried again.
	again := cluster.Retriable(ev.Err) || errors.Is(ev.Err, context.Canceled)
	if rec.State == StateFailed {
		if again || !rec.Retriable {
			return rec, nil, nil
		}
		rec.Reason, rec.Retriable = ev.Err.Error(), false
		return rec, nil, nil
	}
	rec.Reason, rec.Retriable = ev.Err.Error(), again
	rec.Attempts++
	return enter(rec, StateFailed)
}

// epochSeen writes down a source epoch before its first batch is appended (I7).
// What the history has from Start on was never appended, and goes.
func epochSeen(rec Record, ev Event) (Record, []Effect, error) {
	if rec.State != StateMirroring {
		return unfit(rec, ev)
	}
	kept := rec.Epochs.TruncateFrom(ev.Start)
	rec.Appended = true
	if n := len(kept); n > 0 && kept[n-1].Epoch >= ev.Epoch {
		if kept[n-1].Epoch > ev.Epoch {
			return rec, nil, fmt.Errorf("%v offset %d: epoch %d after epoch %d: %w",
				rec.Partition, ev.Start, ev.Epoch, kept[n-1].Epoch, cluster.ErrLeaderEpoch)
		}
		rec.Epochs = kept
		return rec, nil, nil
	}
	rec.Epochs = append(slices.Clip(kept), EpochStart{Epoch: ev.Epoch, Start: ev.Start}).TrimTo(min(ev.Trim, ev.Start))
	return rec, nil, nil
}

// forgive clears the last error.
func forgive(rec Record) Record {
	rec.Reason, rec.Retriable, rec.Attempts = "", false, 0
	return rec
}

func unfit(rec Record, ev Event) (Record, []Effect, error) {
	return rec, nil, fmt.Errorf("%v: %s in %s: %w", rec.Partition, ev.Kind, rec.State, ErrUnfit)
}
