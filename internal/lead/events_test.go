package lead

import (
	"errors"
	"maps"
	"slices"
)

// truncate cuts, now and then in the middle of a batch.
func (w *world) truncate() {
	s := w.p.State()
	if s.Next <= s.LogStart {
		return
	}
	at := s.LogStart + w.dice.Int64N(s.Next-s.LogStart+1)
	base := at
	for _, c := range w.truth.batches {
		if c.base < at && c.next > at {
			base = max(c.base, w.truth.start)
		}
	}
	if _, ok := w.p.Base(at); ok { // the log ends where the last batch does
		end := s.LogStart
		for _, c := range w.truth.batches {
			if c.next <= base {
				end = max(end, c.next)
			}
		}
		base = end
	} else {
		at = base
	}
	w.note("truncate %d to %d", at, base)
	w.pending++
	w.p.Truncate(at, func(err error) {
		w.pending--
		w.note("truncated to %d: %v", base, err)
		if err == nil {
			w.cutEverywhere()
		}
	})
	after := w.p.State()
	if s.Phase == Leading && (after.Next < base || after.Next > at) {
		w.fail("cut at %d: the log ends at %d", base, after.Next)
	}
	base = after.Next
	maps.Copy(w.owed, w.p.Owing()) // and stored
	if w.p.found {
		w.truth.truncate(base)
		w.history = w.history.TruncateFrom(base)
		w.high = min(w.high, base)
		if w.source%4 == 0 { // an epoch may go on behind the cut
			w.source += 2
		}
	}
	w.p.Forget(errors.New("forgotten"))
}

// cutEverywhere: a cut is done, so nobody who is waited for has what is no more.
func (w *world) cutEverywhere() {
	n := 0
	for _, b := range w.brokers {
		f := w.p.follower(b.id)
		if f.live && (b.strange() || b.prefixOf(&w.truth) == nil) {
			n++
		}
		if !f.awaited(w.p.then()) || b.strange() {
			continue // what others wrote was not there when it was cut
		}
		if err := b.prefixOf(&w.truth); err != nil {
			w.fail("a cut is done, and broker %d %v", b.id, err)
		}
	}
	if n < min(w.config.Quorum, len(w.brokers)) {
		w.fail("a cut is done, and %d followers have cut", n)
	}
}

func (w *world) trim() {
	s := w.p.State()
	at := s.LogStart + w.dice.Int64N(s.HighWatermark-s.LogStart+1)
	w.p.Trim(at, func(err error) {
		if err != nil {
			return
		}
		for _, b := range w.brokers {
			if f := w.p.follower(b.id); f.awaited(w.p.then()) && b.start < at {
				w.fail("trimmed to %d, and broker %d starts at %d", at, b.id, b.start)
			}
		}
	})
	w.note("trim to %d", at)
}

func (w *world) startAt() {
	s := w.p.State()
	to := s.Next + w.dice.Int64N(50)
	err := w.p.StartAt(to)
	w.note("start at %d: %v", to, err)
	if err == nil {
		w.truth.restart(to)
		w.history = nil
		w.high = to
	} else if s.Phase == Leading && s.Next == s.LogStart {
		w.fail("an empty log does not start at %d: %v", to, err)
	}
}

// crash takes a broker away; the metadata log says so, or not yet.
func (w *world) crash(b *broker) {
	if b.down {
		return
	}
	w.note("broker %d goes down", b.id)
	b.down = true
	if b.answer != nil {
		b.answer.Release()
		b.answer = nil
	}
	if w.dice.IntN(2) == 0 {
		w.live()
	}
}

// revive brings a broker back, with what another leader gave it meanwhile.
func (w *world) revive(b *broker) {
	if !b.down {
		return
	}
	b.down = false
	if w.dice.IntN(3) == 0 {
		w.foreign(b)
	}
	w.note("broker %d comes back, ends at %d", b.id, b.end)
	w.live()
}

// foreign lets somebody else lead and write. Epochs of elections are odd, those of the
// source even: the two never meet.
func (w *world) foreign(b *broker) {
	if !w.p.found && !w.config.Proven {
		return
	}
	w.strangers = true
	w.epoch++
	if w.epoch%2 == 0 {
		w.epoch++
	}
	b.epochs = b.epochs.Assign(w.epoch, b.end)
	for range w.dice.IntN(3) {
		f := newBatch(b.end, 1+w.dice.IntN(3), w.epoch, 10)
		b.append(stored{base: f.Base, next: f.Next, epoch: f.Epoch, bytes: f.Bytes})
	}
	w.epoch++
	b.epoch = w.epoch
	w.note("broker %d was led by another one up to %d", b.id, b.end)
}

func (w *world) live() {
	var live []int32
	for _, b := range w.brokers {
		if !b.down {
			live = append(live, b.id)
		}
	}
	w.p.Live(live)
}

// elect raises our leader epoch, which the followers or the partition hear of first.
func (w *world) elect() {
	w.epoch += 2
	w.note("epoch %d", w.epoch)
	if w.dice.IntN(2) == 0 {
		w.p.Lead(w.epoch)
	}
}

// forget takes cuts that were made off the store.
func (w *world) forget() {
	for _, id := range w.p.Cut(slices.Collect(maps.Keys(w.owed))) {
		delete(w.owed, id)
	}
	w.p.Served(slices.Collect(maps.Keys(w.owed)))
	w.note("stored cuts are %v", w.owed)
}

// sync changes the in-sync set: those that are admitted come in, others go.
func (w *world) sync() {
	w.p.InSync(w.config.InSync)
	var ask []int32
	for _, b := range w.brokers {
		if w.dice.IntN(2) == 0 && !slices.Contains(w.config.InSync, b.id) {
			ask = append(ask, b.id)
		}
	}
	next := slices.DeleteFunc(slices.Clone(w.config.InSync), func(int32) bool { return w.dice.IntN(3) == 0 })
	next = append(next, w.p.Admit(ask)...)
	w.note("in sync were %v, %v were offered, now %v", w.config.InSync, ask, next)
	w.config.InSync = next
	if w.dice.IntN(3) > 0 { // or we hear of it later
		w.p.InSync(next)
	}
}

// inSyncHold: whoever may be elected in our place has all below the high watermark.
func (w *world) inSyncHold(high int64) {
	last := w.solid(high)
	for _, b := range w.brokers {
		if last <= w.truth.start || !slices.Contains(w.config.InSync, b.id) {
			continue
		}
		if b.end < last || b.copyTo(last).prefixOf(&w.truth) != nil {
			w.fail("broker %d is in sync and lacks records below the high watermark %d", b.id, high)
		}
	}
}
