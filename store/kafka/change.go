package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// want is a change of one slot that somebody waits for.
type want struct {
	slot slot
	home int32
	// decide gives the value to write, seeing what stands in the slot (nil: nothing,
	// graves included). errNothing: there is nothing to do. coordinator.ErrConflict is
	// believed only when the topic was read to its end after the call began.
	decide func(now *value) ([]byte, error)

	tries []*try // all that were made
	done  bool
	err   error
}

// try is one attempt at a want.
type try struct {
	attempt
	key    string
	looked bool // a fresh look was asked for
}

var errNothing = errors.New("nothing to do")

// standing is the value of a slot, unless it is a grave.
func standing(now *value) *value {
	if now == nil || now.deleted {
		return nil
	}
	return now
}

// change makes changes, each in a slot of its own fate: decided on what was read,
// appended, and known to have succeeded when it was read back and nobody was there
// before. Those that were too late are decided again.
func (t *tail) change(ctx context.Context, wants []*want) {
	c := changes{t: t, left: wants}
	defer c.forget(wants)
	var nobody patience
	for fails := 0; len(c.left) > 0; {
		piles := c.round()
		if len(piles) == 0 {
			if len(c.left) == 0 {
				return
			}
			if err := t.sync(ctx); err != nil {
				c.fail(errors.Join(c.last, err))
				return
			}
			c.fresh = true
			continue
		}
		trouble := c.tooLarge(piles, t.append(ctx, piles, fails > 0))
		if trouble == nil {
			fails = 0
			continue
		}
		c.last, c.fresh = trouble, false
		if !passing(trouble) || nobody.over(trouble) || !sleep(ctx, awaited(fails)) {
			c.collect()
			c.fail(at(t.topic, trouble))
			return
		}
		fails++
	}
}

// tooLarge looks for piles that brokers do not take: the values in them are written one
// by one from now on, and one that is too large alone fails. It gives the worst of the
// other errors.
func (c *changes) tooLarge(piles map[int32]*pile, errs map[int32]error) error {
	for n, err := range errs {
		if !errors.Is(err, cluster.ErrTooLarge) {
			continue
		}
		delete(errs, n)
		if p := piles[n]; len(p.wants) == 1 {
			p.wants[0].done, p.wants[0].err = true, at(c.t.topic, err)
		}
		c.single = true
	}
	return worst(errs)
}

// worst is an error that does not pass, if there is one, else any.
func worst(errs map[int32]error) (w error) {
	for _, err := range errs {
		if err != nil && (w == nil || !passing(err)) {
			w = err
		}
	}
	return w
}

// append produces piles and waits until all were read back, or their log was cut. What
// was appended in spite of an error is found by reading.
func (t *tail) append(ctx context.Context, piles map[int32]*pile, fresh bool) map[int32]error {
	errs := t.produce(ctx, piles, fresh)
	err := t.await(ctx, func() bool {
		for n, p := range piles {
			if now := &t.view.parts[n]; errs[n] == nil && now.next < p.next() && now.cuts == p.cuts {
				return false
			}
		}
		return true
	})
	if err != nil {
		for n := range piles {
			errs[n] = cmp.Or(errs[n], err)
		}
	}
	return errs
}

// changes is the work of one call of change.
type changes struct {
	t     *tail
	left  []*want
	fresh bool // the topic was read to its end after the call began
	// single: one value in each batch, as one with more was too large.
	single bool
	last   error
}

// round takes what became of the tries and makes the next ones: at most one for each
// slot, and one batch for each partition. No piles: all is done, or the topic has to be
// read to its end first.
func (c *changes) round() map[int32]*pile {
	c.collect()
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := &t.view; v.misplaced != nil {
		c.fail(at(t.topic, v.misplaced))
		c.left = nil
		return nil
	}
	piles, taken, total := map[int32]*pile{}, map[slot]bool{}, 0
	left := c.left[:0:0]
	for i, w := range c.left {
		if total >= roundBytes {
			left = append(left, c.left[i:]...)
			break
		}
		p := piles[w.home]
		if taken[w.slot] || p != nil && (c.single || p.bytes >= batchBytes) {
			taken[w.slot] = true // whoever comes after it in the slot waits as well
			left = append(left, w)
			continue
		}
		now := t.view.get(w.slot)
		next, err := c.decide(w, now)
		switch {
		case w.done:
			continue
		case err != nil: // not to be believed yet
		default:
			if p == nil {
				p = &pile{part: w.home, cuts: t.view.parts[w.home].cuts}
				piles[w.home] = p
			}
			before := p.bytes
			t.try(w, now, next, p)
			total += p.bytes - before
		}
		taken[w.slot] = true
		left = append(left, w)
	}
	c.left = left
	for _, p := range piles {
		if !c.single {
			t.bury(p)
		}
	}
	return piles
}

// decide asks a want what to write, and ends it when there is nothing to write. An
// error of one that has not ended waits for a fresh look. Needs the tail's lock.
func (c *changes) decide(w *want, now *value) ([]byte, error) {
	var next []byte
	var err error
	if now != nil && now.err != nil {
		err = at(c.t.topic, now.err)
	} else {
		next, err = w.decide(now)
	}
	switch {
	case err == nil || !c.fresh && (errors.Is(err, errNothing) || errors.Is(err, coordinator.ErrConflict)):
	case errors.Is(err, errNothing):
		w.done = true
	default:
		w.done, w.err = true, err
	}
	return next, err
}

// try puts a value into a pile, and the end of the one before: whoever is first with
// this turn, that one is superseded. Needs mu.
func (t *tail) try(w *want, now *value, next []byte, p *pile) {
	turn := int64(1)
	if now != nil {
		turn = now.turn + 1
	}
	a := &try{key: w.slot.key(turn, t.s.token()), attempt: attempt{from: t.view.parts[w.home].next}}
	w.tries = append(w.tries, a)
	t.view.attempts[a.key] = &a.attempt
	p.wants = append(p.wants, w)
	p.add(a.key, next)
	if now != nil {
		p.add(now.key, nil)
	}
}

// buryAtOnce bounds how much is cleaned up along with a write.
const buryAtOnce = 100

// bury deletes values that lost. Needs mu.
func (t *tail) bury(p *pile) {
	n := 0
	for key := range t.view.parts[p.part].dead {
		if n++; n > buryAtOnce {
			return
		}
		p.add(key, nil)
	}
}

// collect takes what became of all tries so far.
func (c *changes) collect() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	left := c.left[:0:0]
	for _, w := range c.left {
		won, look := w.won(&c.t.view, c.fresh)
		if !won && !w.done {
			left = append(left, w)
		}
		if look {
			c.fresh = false
		}
	}
	c.left = left
}

// won ends a want of which a try stood when it was read. Where something was missing
// in the log before it, it must stand at the end of a log that is looked up after
// that. Needs the tail's lock.
func (w *want) won(v *view, fresh bool) (won, look bool) {
	for _, a := range w.tries {
		switch {
		case !a.seen || !a.won:
			continue
		case !a.sure && !a.looked:
			a.looked, look = true, true
			continue
		case !a.sure:
			if now := v.peek(w.slot); !fresh || now == nil || now.key != a.key {
				continue
			}
		}
		w.done = true
		return true, false
	}
	return false, look
}

func (c *changes) fail(err error) {
	for _, w := range c.left {
		if !w.done {
			w.done, w.err = true, err
		}
	}
}

// forget stops to look for tries.
func (c *changes) forget(wants []*want) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	for _, w := range wants {
		for _, a := range w.tries {
			delete(c.t.view.attempts, a.key)
		}
	}
}

// token names one try of this store, and no other of any store.
func (s *Store) token() string {
	return s.name + "." + strconv.FormatInt(s.count.Add(1), 10)
}

// failed is one error of several.
func failed(wants []*want) error {
	var errs []error
	for _, w := range wants {
		if w.err != nil {
			errs = append(errs, w.err)
		}
	}
	if len(errs) > 1 {
		return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}
