package lead

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

var (
	seed  = flag.Uint64("seed", 0, "run only this seed of TestFollowersHoldWhatWasAppended")
	lines = flag.Int("lines", 40, "how much of the schedule a failure shows")
	seeds = flag.Int("seeds", 400, "how many seeds to run")
)

// world drives a partition with followers through a random schedule.
type world struct {
	*testing.T
	dice    *rand.Rand
	p       *Partition
	config  Config
	brokers []*broker
	now     time.Time
	epoch   int32 // of the cluster: foreign leaders make it rise too
	source  int32 // epoch of the source
	// truth is the log as it was appended and cut, in the bytes that followers must have.
	truth   diskLog
	history epoch.History // as the owner of the partition stores it
	high    int64         // the highest high watermark since the last cut
	handed  int           // runs
	freed   int
	done    int
	pending int // of cuts
	// strangers: others have led meanwhile, so that followers cannot be believed.
	strangers bool
	owed      map[int32]int64 // cuts that are stored
	open      bool            // followers may be elected in our place: config.InSync
	log       []string
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fail(format string, args ...any) {
	w.Helper()
	n := max(0, len(w.log)-*lines)
	w.Fatalf("%s\n%s\n%+v", fmt.Sprintf(format, args...), strings.Join(w.log[n:], "\n"), w.p.State())
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, dice: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), epoch: 4, source: 2, owed: make(map[int32]int64)}
	w.config = Config{
		Partition: cluster.Partition{Topic: "t"}, Quorum: 1 + w.dice.IntN(3), Stamp: w.dice.IntN(2) == 0, Window: int64(w.dice.IntN(1000)),
		Idle: 2 * time.Second,
	}
	for i := range 1 + w.dice.IntN(4) {
		w.config.Followers = append(w.config.Followers, int32(i+1))
		w.brokers = append(w.brokers, &broker{id: int32(i + 1), epoch: w.epoch})
	}
	if w.open = w.dice.IntN(2) == 0; w.open {
		w.config.InSync = slices.Clone(w.config.Followers)
	}
	w.begin()
	return w
}

// begin makes a partition of what was stored.
func (w *world) begin() {
	w.config.Epoch, w.config.History, w.config.LogStart, w.config.Proven = w.epoch, w.history, w.truth.start, true
	if !w.strangers && w.dice.IntN(3) == 0 {
		w.config.History, w.config.Proven = nil, false
		// An empty log begins where its owner says, and so does one that is being trimmed.
		trimmed := !slices.ContainsFunc(w.brokers, func(b *broker) bool { return b.start < w.truth.start })
		if trimmed && len(w.truth.batches) > 0 && w.dice.IntN(2) == 0 {
			w.config.LogStart = StartUnknown
		}
	}
	w.p = New(w.config)
}

// step does one thing.
func (w *world) step() {
	switch n := w.dice.IntN(100); {
	case n < 25:
		w.append()
	case n < 78:
		w.fetch(w.brokers[w.dice.IntN(len(w.brokers))])
	case n < 81:
		w.truncate()
	case n < 84:
		w.trim()
	case n < 87:
		w.crash(w.brokers[w.dice.IntN(len(w.brokers))])
	case n < 91:
		w.revive(w.brokers[w.dice.IntN(len(w.brokers))])
	case n < 93:
		w.elect()
	case n < 95:
		w.restart()
	case n < 96:
		w.startAt()
	case n < 97:
		w.source += 2
	case n < 98 && w.open:
		w.sync()
	case n < 99:
		w.forget()
	default:
		w.now = w.now.Add(time.Duration(w.dice.IntN(3000)) * time.Millisecond)
		w.p.Tick(w.now)
	}
	w.check()
}

// append hands over a run from the source.
func (w *world) append() {
	s := w.p.State()
	if s.Phase == Gathering && w.dice.IntN(3) > 0 {
		return
	}
	if !w.config.Stamp && w.source > s.Epoch {
		return // the engine has the epoch raised first
	}
	at := w.truth.end
	if w.dice.IntN(8) == 0 {
		at += int64(w.dice.IntN(5))
	}
	if len(w.truth.batches) == 0 && at > 0 && w.dice.IntN(2) == 0 {
		at -= min(at, 2) // a log that begins inside a batch
	}
	var run []cluster.Batch
	for range 1 + w.dice.IntN(4) {
		b := newBatch(at, 3+w.dice.IntN(3), w.source, w.dice.IntN(200))
		run = append(run, b)
		at = b.Next + int64(w.dice.IntN(2))
	}
	var copies []stored
	for _, b := range run {
		c := stored{base: b.Base, next: b.Next, epoch: b.Epoch, bytes: bytes.Clone(b.Bytes)}
		if w.config.Stamp {
			c.epoch = s.Epoch
			batch.Header(c.bytes).SetLeaderEpoch(s.Epoch)
		}
		copies = append(copies, c)
	}
	w.hand(run, copies)
}

func (w *world) hand(run []cluster.Batch, copies []stored) {
	freed, done, taken := 0, 0, false
	last := run[len(run)-1].Next
	w.handed++
	n := w.handed
	w.p.Append(run, func() {
		if freed++; freed > 1 {
			w.fail("run %d was freed twice", n)
		}
		w.freed++
		for _, b := range run { // whoever still reads this reads poison
			for i := range b.Bytes {
				b.Bytes[i] = 0xdd
			}
		}
	}, func(next int64, landed int, err error) {
		if done++; done > 1 {
			w.fail("run %d was answered twice", n)
		}
		w.done++
		if err == nil && (next != last || landed != len(run)) {
			w.fail("run %d up to %d landed: %d, %d", n, last, next, landed)
		}
		if err != nil && landed == len(run) {
			w.fail("run %d has landed and failed: %v", n, err)
		}
		if err == nil {
			w.quorumHolds(next)
		}
	})
	taken = w.p.State().Next == last
	w.note("append run %d [%d,%d) %d batches: taken %v", n, run[0].Base, last, len(run), taken)
	if !taken {
		w.p.Forget(errors.New("forgotten"))
		return
	}
	for _, c := range copies {
		w.truth.append(c)
		w.history = w.history.Assign(c.epoch, max(c.base, w.truth.start))
	}
}

// quorumHolds looks for the records below an offset where they have to be.
func (w *world) quorumHolds(offset int64) {
	n, last := 0, w.solid(offset)
	if last <= w.truth.start {
		return
	}
	for _, b := range w.brokers {
		if c := b.copyTo(last); b.end >= last && c.prefixOf(&w.truth) == nil {
			n++
		}
	}
	if n < min(w.config.Quorum, len(w.brokers)) {
		w.fail("records below %d are on %d followers, the quorum is %d of %d", offset, n, w.config.Quorum, len(w.brokers))
	}
}

// solid is the end of the last batch that ends at an offset or before.
func (w *world) solid(offset int64) int64 {
	last := w.truth.start
	for _, s := range w.truth.batches {
		if s.next <= offset {
			last = max(last, s.next)
		}
	}
	return last
}

// copyTo is the log as if it ended at an offset, where a batch ends.
func (l *diskLog) copyTo(offset int64) *diskLog {
	c := diskLog{start: l.start, end: min(l.end, offset)}
	for _, s := range l.batches {
		if s.next <= offset {
			c.batches = append(c.batches, s)
		}
	}
	return &c
}

// fetch has a broker take the answer that is on its way to it, or ask for the next one.
func (w *world) fetch(b *broker) {
	switch {
	case b.down:
	case b.answer == nil:
		b.epoch = max(b.epoch, w.p.State().Epoch)
		if w.dice.IntN(4) == 0 {
			b.epoch = w.epoch // it has heard of the election before us
		}
		q := b.question(w.now, int32(100+w.dice.IntN(2000)))
		for range w.dice.IntN(2) { // was parked, and is asked with again
			a := w.p.Fetch(q)
			a.Release()
		}
		b.asked = b.end
		a := w.p.Fetch(q)
		b.answer, b.from, b.read = &a, w.p, nil
		if a.Elsewhere >= 0 && w.dice.IntN(2) == 0 {
			b.read = w.elsewhere(a.Holders, a.Elsewhere, a.End)
		}
		w.note("broker %d asks %+v: %d, diverging %v, %d batches, elsewhere %d, high %d", b.id, q, a.Code, a.Diverging, len(a.Records), a.Elsewhere, a.HighWatermark)
	case w.dice.IntN(10) == 0: // the connection is lost
		b.answer.Release()
		b.answer = nil
	default:
		if b.answer.Elsewhere >= 0 && b.read == nil { // is read only now
			b.read = w.elsewhere(b.answer.Holders, b.answer.Elsewhere, b.answer.End)
			if !b.from.Current(b.answer) {
				b.read = nil
			}
		}
		b.take(w, w.p, b.answer)
		b.answer = nil
	}
	b.high = min(b.high, b.end)
}

// elsewhere reads what has left the window from another follower, or from the source.
func (w *world) elsewhere(holders []Holder, from, to int64) []stored {
	for _, h := range holders {
		for _, b := range w.brokers {
			if b.id == h.Replica && h.End > from && !b.down {
				found := b.between(from, min(h.End, b.end))
				if len(found) == 0 {
					w.p.Gap(from, h.End)
				}
				return found
			}
		}
	}
	if w.truth.end < to {
		return nil
	}
	return w.truth.between(from, to) // as the source would have it
}

// restart is a new process that knows what was stored.
func (w *world) restart() {
	before := w.p.State()
	if before.Phase != Leading {
		return
	}
	w.p.Close(errors.New("restart"))
	for _, f := range before.Followers {
		switch at, ok := w.owed[f.Replica]; {
		case f.Owes < 0: // what is made is forgotten where it was stored
			delete(w.owed, f.Replica)
		case !ok || f.Owes < at:
			w.owed[f.Replica] = f.Owes
		}
	}
	w.config.Owed = maps.Clone(w.owed)
	w.high, w.config.HighWatermark = 0, 0
	if w.dice.IntN(2) == 0 { // it was stored
		w.high, w.config.HighWatermark = w.solid(before.HighWatermark), before.HighWatermark
	}
	w.begin()
	w.live()
	w.note("restart, the high watermark was %d", before.HighWatermark)
	w.pass(func() bool { return w.p.State().Phase == Leading }, true)
	after := w.p.State()
	if after.Next < w.solid(before.HighWatermark) || after.Next > before.Next {
		w.fail("the log ended at %d, high watermark %d, and now at %d", before.Next, before.HighWatermark, after.Next)
	}
	// What only the window had is gone.
	w.truth.truncate(after.Next)
	w.history = w.history.TruncateFrom(after.Next)
}

// settle brings all brokers back and lets time pass until something is so.
func (w *world) settle(is func() bool) {
	for _, b := range w.brokers {
		w.revive(b)
	}
	w.pass(is, false)
}

// pass lets time pass until something is so, and brokers come back when that helps.
func (w *world) pass(is func() bool, help bool) {
	for n := range 3000 {
		if is() {
			return
		}
		if help && n%500 == 499 {
			for _, b := range w.brokers {
				if b.down {
					w.revive(b)
					break
				}
			}
		}
		w.now = w.now.Add(10 * time.Millisecond)
		w.p.Tick(w.now)
		w.fetch(w.brokers[w.dice.IntN(len(w.brokers))])
		w.check()
	}
	w.fail("it does not settle")
}

// check is what is true after each step.
func (w *world) check() {
	s := w.p.State()
	w.truth.trim(s.LogStart)
	if s.Disputed {
		w.p.Know(w.history)
	}
	if s.Phase != Leading {
		return
	}
	if s.HighWatermark < w.high {
		w.fail("the high watermark went back from %d to %d", w.high, s.HighWatermark)
	}
	w.high = s.HighWatermark
	if s.Next != w.truth.end {
		return // in restart: it is not known yet what was lost
	}
	w.quorumHolds(s.HighWatermark)
	w.inSyncHold(s.HighWatermark)
	for _, e := range w.truth.epochs {
		if got, want := w.p.EpochEnd(e.Epoch), w.truth.epochs.EndFor(e.Epoch, w.truth.end); got != want && w.config.Proven {
			w.fail("epoch %d ends at %+v, want %+v of %v", e.Epoch, got, want, w.truth.epochs)
		}
	}
	if s.LastStable > s.HighWatermark || s.LogStart > s.HighWatermark || s.HighWatermark > s.Next {
		w.fail("%+v", s)
	}
}

func (w *world) quiet() bool {
	w.forget()
	s := w.p.State()
	for i, b := range w.brokers {
		if s.Followers[i].Holds != w.truth.end || b.start != s.LogStart || b.high != b.end || b.answer != nil {
			return false
		}
	}
	return w.pending == 0
}

// TestFollowersHoldWhatWasAppended: whatever happens, in the end all followers have, byte
// for byte, what was appended and not cut.
func TestFollowersHoldWhatWasAppended(t *testing.T) {
	first, n := uint64(1), *seeds
	if *seed > 0 {
		first, n = *seed, 1
	}
	for s := first; s < first+uint64(n); s++ {
		if !t.Run(fmt.Sprint("seed ", s), func(t *testing.T) { live(newWorld(t, s)) }) {
			return
		}
	}
}

func live(w *world) {
	for range 300 {
		w.step()
	}
	w.settle(w.quiet)
	for _, b := range w.brokers {
		if err := b.prefixOf(&w.truth); err != nil {
			w.fail("broker %d: %v", b.id, err)
		}
		for _, s := range b.batches {
			if at := max(s.base, b.start); b.epochs.At(at) != s.epoch {
				w.fail("broker %d has epoch %d at %d by its checkpoint, the batch has %d", b.id, b.epochs.At(at), at, s.epoch)
			}
		}
	}
	if s := w.p.State(); s.Window != 0 {
		w.fail("%d bytes are kept for nobody", s.Window)
	}
	w.p.Close(errors.New("over"))
	if w.freed != w.handed || w.done != w.handed {
		w.fail("%d runs: %d freed, %d answered", w.handed, w.freed, w.done)
	}
}
