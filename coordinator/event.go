package coordinator

import (
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// EventKind says what happened.
type EventKind string

// What can happen to a partition. The comment names the states that take the
// event and the fields of Event it uses; elsewhere it is refused with ErrUnfit
// unless it says "ignored".
const (
	// EventWant: the operator, or discovery, wants Desired. TopicID is the
	// source's (zero: not known), Sources the clusters that the topic comes from, Later
	// goes into a new record; a start with another id than the pinned one is
	// refused with cluster.ErrTopicReplaced. Any state; a pause of a stopped topic
	// is refused. The same wish again changes nothing, except that a stop of a
	// FAILED partition is tried again at once.
	EventWant EventKind = "want"
	// EventAligned: LOG_ALIGNMENT is finished. How says how; Epochs, when not
	// nil, replaces the history (cut off at the log end), Unproven goes with it;
	// Sources, when not nil, are where the topic comes from.
	EventAligned EventKind = "aligned"
	// EventProgress: the first good append after a start or an error. MIRRORING;
	// elsewhere ignored.
	EventProgress EventKind = "progress"
	// EventEpochSeen: the batch at Start, the destination's log end, is the first
	// of source epoch Epoch (I7: appended only after Ack). What the history has below
	// Trim, where the source's log starts, is forgotten. MIRRORING.
	EventEpochSeen EventKind = "epoch-seen"
	// EventRaiseNeeded: a batch's epoch is above the destination's. MIRRORING.
	EventRaiseNeeded EventKind = "raise-needed"
	// EventEpochRaised: EPOCH_FENCING is finished.
	EventEpochRaised EventKind = "epoch-raised"
	// EventCutNeeded: the logs part at offset Cut. How says how that was found;
	// RebuildOf, RebuildAs and Restore are set where the cut is a rebuild of the topic, which
	// concerns partitions that have nothing to cut too. MIRRORING, LOG_ALIGNMENT;
	// ULE_RECOVERY, PAUSED and FAILED too when RebuildOf is set.
	EventCutNeeded EventKind = "cut-needed"
	// EventCutDone: ULE_RECOVERY is finished on every replica. Epochs, Unproven and
	// How as in EventAligned.
	EventCutDone EventKind = "cut-done"
	// EventRestored: the committed offsets that Record.Restore has up to offset Start
	// were given back to their groups. MIRRORING, STOPPING, STOPPED; elsewhere ignored.
	EventRestored EventKind = "restored"
	// EventDrained: PAUSING is finished, nothing of ours is in flight.
	EventDrained EventKind = "drained"
	// EventPositionRead: the stop has read the end of the log; Position is stored,
	// and only after Ack may the log be fenced (I6). STOPPING.
	EventPositionRead EventKind = "position-read"
	// EventStopped: STOPPING is finished. Position nil keeps the stored one.
	EventStopped EventKind = "stopped"
	// EventFailed: it went wrong with Err; cluster.Retriable says whether it is
	// tried again. Every state but STOPPED; in FAILED only a permanent error
	// replaces one that would have been retried.
	EventFailed EventKind = "failed"
	// EventSourcesSeen: the topic comes from the clusters Sources just now. MIRRORING;
	// elsewhere ignored.
	EventSourcesSeen EventKind = "sources-seen"
	// EventRecover: the operator wants a FAILED partition tried again now, with
	// the count of attempts back at zero. Ignored in other states.
	EventRecover EventKind = "recover"
	// EventForget: delete the record. STOPPED and UNKNOWN.
	EventForget EventKind = "forget"

	// The loop's own: a retry's time has come (ignored unless FAILED and
	// retriable), the partition is taken over, the target is to be decided again.
	eventRetryDue   EventKind = "retry-due"
	eventTakeOver   EventKind = "take-over"
	eventReconsider EventKind = "reconsider"
)

// Event is something that happened to one partition.
type Event struct {
	Partition cluster.Partition
	Kind      EventKind

	Desired   Desired
	TopicID   cluster.TopicID
	How       string
	Epochs    epoch.History // must not be changed after Post
	Sources   []string      // must not be changed after Post
	Restore   []cluster.GroupOffset
	RebuildOf cluster.TopicID
	RebuildAs *cluster.NewTopic // must not be changed after Post
	Unproven  bool
	Later     bool
	Position  *cluster.Position // must not be changed after Post
	Err       error
	Epoch     int32
	Start     int64
	Trim      int64
	Cut       int64
	// Revision of the operator's intent that an EventWant or EventRecover comes
	// from; zero when it comes from none.
	Revision int64

	// Seq is the Seq of the effect this is the outcome of. An outcome of an
	// effect that has been superseded is refused. Zero: not the outcome of an
	// effect.
	Seq uint64
	// Ack, when not nil, is called once from the coordinator's goroutine: with
	// nil when the event's consequence is stored (or there was none), else with
	// why not. It must not block.
	Ack func(error)
}

// EffectKind says what is to be done.
type EffectKind string

// What a Performer is asked to do. Each is finished by the events named, or by
// EventFailed, and can be repeated.
const (
	EffectAlign      EffectKind = "align"       // EventAligned or EventCutNeeded
	EffectFetch      EffectKind = "fetch"       // goes on until its ctx ends; reports EventProgress and the like
	EffectRaiseEpoch EffectKind = "raise-epoch" // EventEpochRaised
	EffectCut        EffectKind = "cut"         // truncate to Record.Cut: EventCutDone
	EffectDrain      EffectKind = "drain"       // EventDrained
	EffectStop       EffectKind = "stop"        // EventPositionRead, then EventStopped

	// The loop's own: arm the retry timer; decide the target again now that this
	// is stored.
	effectArmRetry   EffectKind = "arm-retry"
	effectReconsider EffectKind = "reconsider"
)

// Effect is something to be done for one partition now that its record is
// stored.
type Effect struct {
	Kind EffectKind
	// Seq names this one effect; its outcomes carry it back in Event.Seq.
	Seq uint64
}
