package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
)

// peers are the other brokers of our range, asked again and again whether they live and
// are workers of our group.
type peers struct {
	m       *Membership
	group   digest
	silence time.Duration
	secret  []byte        // set before run; nil: none is shared
	stirred chan struct{} // capacity 1: one of them is silent, or not any more

	mu     sync.Mutex
	all    map[int32]*peer
	looked time.Time
}

// peer is one of them.
type peer struct {
	end    context.CancelFunc
	since  time.Time // of the first question
	proves bool      // it has proven an answer to be its own: others do not count any more
	word
}

// word is what a broker of our range has said.
type word struct {
	// heard is the last answer. Zero: none since we fenced it, or ever. Then its silence
	// says nothing: it may be the way between us that is broken.
	heard  time.Time
	worker bool // of our group
	turn   bool // it has the turn
	asked  bool // it has answered, or was waited for
	gone   bool // nobody listens at its address
	// anew: it had the turn, and has not any more: its process has begun anew, and another
	// one may be faster at what it led.
	anew bool
}

func newPeers(m *Membership, group string, silence time.Duration) *peers {
	return &peers{m: m, group: digestOf(group), silence: silence, stirred: make(chan struct{}, 1), all: make(map[int32]*peer)}
}

// run asks all that are registered until ctx ends.
func (p *peers) run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for version := uint64(0); ctx.Err() == nil; {
		image, _, err := p.m.log.Next(ctx, version)
		if err != nil {
			continue
		}
		version = image.Version
		us, there := p.m.party(), make(map[int32]bool)
		for b := range image.Brokers() {
			if us.Broker < 0 || b.ID == us.Broker || us.real(b.ID) {
				continue
			}
			there[b.ID] = true
			if mine, is := p.begin(ctx, b.ID); is {
				asking.Go(func() { p.watch(mine, b.ID) })
			}
		}
		p.keep(there)
	}
	return nil
}

// begin notes one that is new.
func (p *peers) begin(ctx context.Context, id int32) (context.Context, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[id] != nil {
		return nil, false
	}
	mine, end := context.WithCancel(ctx)
	p.all[id] = &peer{end: end, since: time.Now()}
	return mine, true
}

// keep forgets those that are not registered any more.
func (p *peers) keep(there map[int32]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, one := range p.all {
		if !there[id] {
			one.end()
			delete(p.all, id)
		}
	}
}

// watch asks one of them.
func (p *peers) watch(ctx context.Context, id int32) {
	for refused := 0; ctx.Err() == nil; {
		wait, answers := p.silence/12, 0
		err := p.m.askPeer(ctx, id, p.silence, p.secret, func(s said) {
			refused = 0
			if p.answered(id, s) {
				answers++
			}
		})
		if refused++; !errors.Is(err, syscall.ECONNREFUSED) {
			refused = 0
		}
		if refused >= 2 { // once may be a listener that is opened again
			p.note(id, func(w *word) { w.gone, w.asked = true, true })
			p.stir()
		}
		if answers > 0 || refused == 1 { // whether it is dead is seen at once
			wait = p.silence / 30
		}
		pause(ctx, wait)
	}
}

// answered notes an answer. One that anybody could have given does not count of who proves his.
func (p *peers) answered(id int32, s said) (counts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[id]
	if one == nil || one.proves && !s.proven {
		return false
	}
	one.proves = s.proven
	if one.anew = !s.turn && (one.anew || one.turn); one.anew && one.turn {
		p.stir()
	}
	one.heard, one.worker, one.turn, one.asked, one.gone = time.Now(), s.group == p.group, s.turn, true, false
	return true
}

func (p *peers) note(id int32, change func(*word)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[id]; one != nil {
		change(&one.word)
	}
}

func (p *peers) stir() {
	select {
	case p.stirred <- struct{}{}:
	default:
	}
}

// look is what is known of all of them now. Time in which nobody looked does not count as
// their silence: we were frozen ourselves, or kept from running.
func (p *peers) look(now time.Time) map[int32]word {
	p.mu.Lock()
	defer p.mu.Unlock()
	away := now.Sub(p.looked)
	if p.looked.IsZero() || away < p.silence/2 {
		away = 0
	}
	p.looked = now
	out := make(map[int32]word, len(p.all))
	for id, one := range p.all {
		one.asked = one.asked || now.Sub(one.since) > p.silence
		if !one.heard.IsZero() {
			one.heard = one.heard.Add(away)
		}
		out[id] = one.word
	}
	return out
}

// words is what they have said.
func (p *peers) words() map[int32]word {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[int32]word, len(p.all))
	for id, one := range p.all {
		out[id] = one.word
	}
	return out
}

// fenced says that what is heard of one begins anew.
func (p *peers) fenced(id int32) { p.note(id, func(w *word) { w.heard, w.anew = time.Time{}, false }) }

// silent reports that one does not answer that did.
func (w word) silent(now time.Time, silence time.Duration) bool {
	return !w.heard.IsZero() && (w.gone || now.Sub(w.heard) > silence)
}

// overdue reports that a worker may be taken for dead: its process, or the one before.
func (w word) overdue(now time.Time, silence time.Duration) bool {
	return w.worker && (w.silent(now, silence) || w.anew)
}

// standing are the workers of our group that answer and are in good standing, in the order of
// their ids.
func standing(image metalog.Image, words map[int32]word, now time.Time, silence time.Duration) (out []int32) {
	for id, w := range words {
		b, ok := image.Broker(id)
		if ok && !b.Fenced && !b.InControlledShutdown && w.worker && !w.heard.IsZero() && !w.silent(now, silence) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
