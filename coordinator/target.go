package coordinator

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// want takes what an operator or discovery wants.
func want(rec Record, ev Event) (Record, []Effect, error) {
	if !ev.Desired.Valid() {
		return rec, nil, fmt.Errorf("%v: desired state %q is not known: %w", rec.Partition, ev.Desired, ErrUnfit)
	}
	if ev.Revision > 0 && ev.Revision < rec.Intent {
		return rec, nil, nil // a later wish was followed already
	}
	if ev.Desired == WantPaused && (rec.State == StateStopped || rec.Desired == WantStopped || rec.stopUnfinished()) {
		if ev.Revision > rec.Intent { // refused, and known to be
			rec.Intent = ev.Revision
			return rec, nil, nil
		}
		return unfit(rec, ev)
	}
	if ev.Desired != WantStopped {
		// Until something was appended, or found to be the source's, the ids bind to
		// nothing.
		bound := rec.Appended || rec.Aligned && rec.State != StateStopped
		if bound && len(rec.Sources) > 0 && len(ev.Sources) > 0 && ev.Sources[0] != rec.Sources[0] {
			return rec, nil, fmt.Errorf("%v: the source cluster has id %s, mirrored was %s: %w",
				rec.Partition, ev.Sources[0], rec.Sources[0], cluster.ErrClusterReplaced)
		}
		if bound && !ev.TopicID.IsZero() && !rec.TopicID.IsZero() && ev.TopicID != rec.TopicID {
			return rec, nil, fmt.Errorf("%v: the source topic has id %v, mirrored was %v: %w",
				rec.Partition, ev.TopicID, rec.TopicID, cluster.ErrTopicReplaced)
		}
		if !ev.TopicID.IsZero() {
			rec.TopicID = ev.TopicID
		}
		if len(ev.Sources) > 0 && (len(rec.Sources) == 0 || rec.Sources[0] != ev.Sources[0]) {
			rec.Sources = ev.Sources
		}
	}
	if ev.Revision > 0 || rec.Intent == 0 { // discovery does not overrule an operator
		rec.Desired = ev.Desired
	}
	rec.Intent = max(rec.Intent, ev.Revision)
	to := target(rec)
	if to == rec.State {
		return rec, nil, nil // on its way already
	}
	return enter(rec, to)
}

// target decides what a partition should be doing on a start, a takeover or a
// change of what is wanted. Stop comes first: the operator can always fail
// over, most of all when the source is dead and everything has failed.
func target(rec Record) State {
	switch {
	case rec.Desired == WantStopped:
		if rec.State == StateStopped || rec.State == StateUnknown && !rec.Appended {
			return StateStopped
		}
		return StateStopping
	case rec.stopUnfinished():
		return rec.State // a stop that has begun is finished, then decided again
	case rec.Desired == WantPaused:
		if rec.State == StatePaused || rec.State == StateStopped {
			return rec.State
		}
		return StatePausing
	case rec.State == StateFailed:
		return StateFailed
	case rec.State == StatePaused:
		return resumed(rec)
	case rec.State == StateUnknown || rec.State == StateStopped:
		return StateLogAlignment
	}
	return rec.State
}

// resumed is where a paused partition goes on: to MIRRORING, unless the pause
// interrupted a cut (I8) or the alignment (I2).
func resumed(rec Record) State {
	switch {
	case rec.Cut >= 0:
		return StateULERecovery
	case !rec.Aligned:
		return StateLogAlignment
	}
	return StateMirroring
}

// retryTarget is where a FAILED partition is tried again: the state it came from
// where the table allows it, else LOG_ALIGNMENT. Copying is gone on with through
// LOG_ALIGNMENT as well: whatever made it fail may have changed the logs, and the next
// try may be another process's.
func retryTarget(rec Record) State {
	if to := target(rec); to != StateFailed {
		return to
	}
	switch {
	case rec.Cut >= 0:
		return StateULERecovery // still owed (I8)
	case rec.Previous == StateFailed, rec.Previous == StateMirroring, !Legal(StateFailed, rec.Previous):
		return StateLogAlignment
	}
	return rec.Previous
}

// reenter goes to the target and repeats its side effect, also when the
// partition is there already.
func reenter(rec Record) (Record, []Effect, error) {
	return enter(rec, target(rec))
}

// enter changes the state and asks for its side effect.
func enter(rec Record, to State) (Record, []Effect, error) {
	t, _ := row(to)
	if !Legal(rec.State, to) {
		return rec, nil, fmt.Errorf("%v: %s to %s is not a legal transition: %w", rec.Partition, rec.State, to, ErrUnfit)
	}
	if to == StateLogAlignment && (rec.State == StateStopped || rec.Stretch == 0) {
		rec.Stretch++
		rec.Aligned = false
	}
	if to == StateStopping && rec.Stretch == 0 {
		rec.Stretch = 1 // the stop fences the log, so a start after it is a second stretch
	}
	if rec.State != to {
		rec.Previous, rec.State = rec.State, to
	}
	switch {
	case t.effect != "":
		return rec, []Effect{{Kind: t.effect}}, nil
	case to == StateFailed && rec.Retriable:
		return rec, []Effect{{Kind: effectArmRetry}}, nil
	}
	return rec, nil, nil
}

// settle enters a state in which nothing is done, and decides again once that
// is stored when something else is wanted by now.
func settle(rec Record, to State) (Record, []Effect, error) {
	rec, effects, err := enter(rec, to)
	if err == nil && target(rec) != to {
		effects = append(effects, Effect{Kind: effectReconsider})
	}
	return rec, effects, err
}
