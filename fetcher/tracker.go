package fetcher

import (
	"fmt"
	"math"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// A tracker is what one session knows of one partition. It is pure: nothing in
// it waits, reads a clock or does I/O.
type tracker struct {
	partition cluster.Partition
	topicID   cluster.TopicID
	there     cluster.TopicID // the destination's
	board     *Progress

	stretch   Stretch
	next      int64        // offset after the last batch taken; what is fetched next
	lastEpoch int32        // source epoch of the last batch taken
	epochs    []epochStart // the epochs of this assignment, ascending
	leader    cluster.Leader
	want      int32 // bytes asked for in one fetch
	largest   int32 // bytes of the largest batch seen
	oldEnd    int64 // where the last message of an old format ended that was taken
	grown     bool  // more than at first, since the source is a long way off
	far       bool  // the destination is
	landed    int64 // the destination's log end, as far as it is known

	leap bool         // may go on above what the source's retention has deleted
	told cluster.Span // was reported as skipped
	skip cluster.Span // is to be reported as skipped

	// gen rises whenever next is set anew. What was asked for under an older
	// generation is dropped when it arrives (C11.9).
	gen      uint32
	askedGen uint32
	asked    int64 // offset asked for last

	inflight int64 // bytes handed to the destination and not answered
	runs     int   // runs handed over and not answered
	held     *run  // waits for its epoch to be stored (I7)

	phase    phase
	why      error     // in phase draining: what the append failed with
	unsure   bool      // the position must be read from the destination again
	resumeAt time.Time // in phase backoff
	refused  bool      // the last append that was answered failed
	attempts int       // errors in a row
	failedAt time.Time // when the errors in a row began
	doubtful int64     // errors are over when something from here on has landed
	corrupt  int       // times in a row that corrupt bytes stood at
	spoiltAt int64     // this offset
	settled  bool      // something has landed since the last assignment or error
	troubled bool      // is in the session's list of those that show an error

	member    bool // the broker's session knows the partition
	dirty     bool // position or size differ from what the broker's session knows
	queued    bool // stands in the session's queue for the next request
	waiting   bool // is kept out of the fetch by what is in flight or held
	trimming  bool
	trimmed   int64     // source log start that the destination was trimmed to
	trimAfter time.Time // no further try before, after a failed one

	stable    int64 // the source's last stable offset, where committed records are fetched; else far away
	suspected bool  // stands in the session's list of those that may be at a trailing hole
	probing   bool  // the source is asked about it
	heldAt    int64 // last stable offset at which it was found to be held; -1: it is not
	heldFrom  time.Time
	heldTold  bool

	lost bool      // out of sight: its broker's session was lost or refused it, or it comes from another broker
	seen time.Time // when it was last known to be the same topic, unless it is in the fetch; zero: by whoever assigned it

	movedAt  time.Time // last time something landed
	stalled  bool      // reported as stalled
	filledTo int64     // how far a hole was filled when it was last looked at
}

func newTracker(a Assignment, want int32) *tracker {
	t := &tracker{
		partition: a.Stretch.Partition, topicID: a.TopicID, there: a.There, board: a.Progress, stretch: a.Stretch, next: a.Next,
		lastEpoch: a.LastEpoch, epochs: []epochStart{{a.LastEpoch, 0}}, want: want, trimmed: a.Trimmed,
		landed: a.Next, stable: math.MaxInt64, heldAt: -1, oldEnd: -1,
	}
	t.stretch.New = false
	t.far = a.RoundTrip >= longRound
	if t.board == nil {
		t.board = &Progress{}
	}
	t.board.LogEnd.Store(a.Next)
	t.board.Ceiling.Store(a.Ceiling)
	t.board.setTrouble(nil) // that of an earlier assignment
	return t
}

// again is the tracker for a partition that changes its session. Its position is
// the destination's to say: what the old session handed over may still land.
func (t *tracker) again() *tracker {
	return &tracker{
		partition: t.partition, topicID: t.topicID, there: t.there, board: t.board, stretch: t.stretch, next: t.next, lastEpoch: t.lastEpoch,
		epochs: t.epochs, leader: t.leader, want: t.want, largest: t.largest, far: t.far, trimmed: t.trimmed, gen: t.gen,
		landed: t.landed, leap: t.leap, told: t.told, stable: math.MaxInt64, heldAt: -1,
		attempts: t.attempts, failedAt: t.failedAt, corrupt: t.corrupt, spoiltAt: t.spoiltAt, refused: t.refused,
		phase: learning, unsure: true, lost: true, oldEnd: -1,
	}
}

// another reports that the destination's topic is not the one that was begun with: what
// stands in it now, even up to the position, is not what was appended.
func (t *tracker) another(id cluster.TopicID) bool {
	return !t.there.IsZero() && !id.IsZero() && t.there != id
}

// phase says whether a partition is fetched, and if not, what it waits for.
type phase uint8

const (
	fetching    phase = iota
	draining          // an append failed: waits for the other runs' answers
	learning          // the destination is asked for the truth (Ends)
	classifying       // the source is asked why an offset is out of range
	converting        // what was fetched is converted from an old format
	backoff           // waits for resumeAt
)

// An epochStart is a source epoch and the first offset that has it.
type epochStart struct {
	epoch int32
	start int64
}

// reset sets the position anew: what is under way for the old one is dropped.
// Epochs that begin at or after the position have not been mirrored.
func (t *tracker) reset(next int64) {
	for len(t.epochs) > 1 && t.epochs[len(t.epochs)-1].start >= next {
		t.epochs = t.epochs[:len(t.epochs)-1]
	}
	t.lastEpoch = t.epochs[len(t.epochs)-1].epoch
	t.next, t.doubtful, t.filledTo = next, next, 0
	t.gen++
	t.dirty = true
}

// begin notes that the epoch starts at the position.
func (t *tracker) begin(epoch int32) {
	t.lastEpoch = epoch
	t.epochs = append(t.epochs, epochStart{epoch, t.next})
}

// outcome says how taking records from an answer ended.
type outcome uint8

const (
	tookAll   outcome = iota
	newEpoch          // the next batch begins an epoch that is not stored yet
	staleView         // a batch's epoch is above the leader epoch we fetched with
	tooHigh           // a batch's epoch is not below the destination's own (I5)
	oldFormat         // the next messages are of a format before 2
	bad               // the batch at the position cannot be mirrored
)

// take reads the batches that continue the log from rest and appends them to
// into. It stops before the first batch that begins a new epoch, and at the
// first that cannot be mirrored. It does not allocate, but for errors, and for a batch
// that the position is inside of. What readers see is asked of seen where the destination
// fills what they do not.
func (t *tracker) take(w *batch.Walker, into []cluster.Batch, traits Traits, seen *visibility) ([]cluster.Batch, outcome, error) {
	ceiling := t.ceiling(traits)
	for before := *w; w.Next(); before = *w {
		h := w.Header()
		if h.Magic() != 2 {
			if !t.verbatim(traits) {
				*w = before
				return into, oldFormat, nil
			}
			var err error
			if into, err = t.takeOld(into, h); err != nil {
				return into, bad, err
			}
			continue
		}
		if traits.Fills && seen.open(h) {
			break
		}
		if h.Next() <= t.next { // the answer begins before the position
			if traits.Fills {
				seen.hides(h)
			}
			continue
		}
		if err := t.check(w, traits); err != nil {
			return into, bad, err
		}
		switch epoch := h.LeaderEpoch(); {
		case t.leader.Epoch >= 0 && epoch > t.leader.Epoch:
			*w = before
			return into, staleView, nil
		case epoch >= ceiling:
			*w = before
			return into, tooHigh, nil
		case epoch > t.lastEpoch:
			*w = before
			return into, newEpoch, nil
		case epoch >= 0 && epoch < t.lastEpoch:
			return into, bad, t.err(h.Base(), h.Next(), cluster.ErrDiverged,
				fmt.Sprintf("source epoch went back from %d to %d", t.lastEpoch, epoch))
		}
		if traits.Fills {
			var err error
			if into, err = t.fill(into, h, seen); err != nil {
				return into, bad, err
			}
		} else {
			if h.Base() > t.next {
				t.skipTo(min(h.Base(), t.board.LogStart.Load()))
			}
			into = append(into, t.batch(h))
		}
		t.next, t.dirty = h.Next(), true
		t.largest = max(t.largest, int32(len(h)))
	}
	if err := w.Err(); err != nil {
		return into, bad, t.err(t.next, t.next+1, cluster.ErrCorrupt, err.Error())
	}
	return into, tookAll, nil
}

// from is the offset to ask for. A source log may start inside a batch: then the
// batch is asked for by its first offset that is left, and comes whole.
func (t *tracker) from() int64 { return max(t.next, t.board.LogStart.Load()) }

// check refuses what would not be an exact copy at the destination.
func (t *tracker) check(w *batch.Walker, traits Traits) error {
	h := w.Header()
	if err := w.Check(); err != nil {
		return t.err(h.Base(), h.Next(), cluster.ErrCorrupt, err.Error())
	}
	switch {
	case h.Base() > t.next && t.board.LogStart.Load() > t.next && !t.leap:
		return t.err(t.next, h.Base(), cluster.ErrRetention, "")
	case h.Base() > t.next && !traits.Gaps:
		return t.err(t.next, h.Base(), cluster.ErrGap, "")
	case h.Base() < t.next && !traits.Fills:
		return t.err(t.next, h.Next(), cluster.ErrDiverged,
			fmt.Sprintf("destination log ends inside the source batch [%d,%d)", h.Base(), h.Next()))
	case h.Control() && !traits.ControlBatches && !traits.Fills:
		return t.err(h.Base(), h.Next(), cluster.ErrControlBatch, "")
	case h.Transactional() && !traits.ControlBatches && !traits.Fills:
		return t.err(h.Base(), h.Next(), cluster.ErrTransactional, "")
	case h.LogAppendTime() && !traits.LogAppendTime:
		return t.err(h.Base(), h.Next(), cluster.ErrLogAppendTime, "")
	}
	records, offsets := int64(h.Count()), h.Next()-h.Base()
	switch {
	case records > offsets:
		return t.err(h.Base(), h.Next(), cluster.ErrCorrupt, fmt.Sprintf("%d records at %d offsets", records, offsets))
	case records < offsets && !traits.Gaps:
		return t.err(h.Base(), h.Next(), cluster.ErrGap, fmt.Sprintf("batch holds %d records at %d offsets", records, offsets))
	}
	return nil
}

func (t *tracker) err(from, to int64, err error, detail string) error {
	return &cluster.OffsetError{Partition: t.partition, Span: cluster.Span{From: from, To: to}, Detail: detail, Err: err}
}

// ready says whether the partition takes part in the next fetch. share is how
// many bytes of one partition may be in flight.
func (t *tracker) ready(share share) bool {
	ask, most := int64(t.ask(share)), share.most
	if !t.far {
		most = min(share.most, max(ahead*int64(t.want), 2*ask))
	}
	if t.near() {
		most = min(most, max(share.near, 2*ask))
	}
	return t.phase == fetching && t.held == nil && (t.inflight == 0 || t.inflight+ask <= most)
}

// longRound is the round trip from which on a way is long.
const longRound = 20 * time.Millisecond

// ahead is how many times what is asked for at once may be on its way to the
// destination. More would only spread over more memory than the processor's
// caches have: what is asked for grows where the way is long.
const ahead = 4

// near reports that the ways from the source and to the destination are short.
func (t *tracker) near() bool { return !t.far && !t.grown }

// ask is how many bytes to ask for: a number of batches of the largest size seen,
// and of large ones many, since the last one is cut off and sent twice.
func (t *tracker) ask(share share) int32 {
	many := min(manyBatches*int64(t.largest), 4*int64(t.want))
	n := int32(min(max(int64(t.want), many), share.most))
	if t.near() {
		n = min(n, int32(max(share.near/ahead, leastShare)))
	}
	if t.largest > 0 && t.largest <= n {
		n -= n % t.largest
	}
	return n
}

// manyBatches in one answer make the one that is cut off cheap.
const manyBatches = 16

// grow has more asked for at a time when n bytes came near to what was asked for.
func (t *tracker) grow(n int, share share) {
	more := int32(min(int64(t.want)*2, share.most/2, largestPart))
	if more > t.want && n >= int(t.want)/4*3 {
		t.want, t.grown, t.dirty = more, true, true
	}
}

// spoilt counts how often in a row corrupt bytes stood at the offset.
func (t *tracker) spoilt(at int64) int {
	if at != t.spoiltAt {
		t.spoiltAt, t.corrupt = at, 0
	}
	t.corrupt++
	t.board.Corrupt.Add(1)
	return t.corrupt
}

// wait puts the partition into a back-off that doubles with each error in a row.
func (t *tracker) wait(now time.Time, first, most time.Duration) {
	if t.attempts == 0 {
		t.failedAt = now
	}
	t.doubtful, t.settled = t.next, false
	t.resumeAt = now.Add(backoffAfter(t.attempts, first, most))
	t.attempts++
	t.phase = backoff
}
