package fetcher

import (
	"context"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// trustHints is how many moves in a row may follow the brokers' hints before the
// cluster is asked itself.
const trustHints = 3

// slowestMove bounds the waiting between two looks for the leader of a partition
// whose brokers disagree.
const slowestMove = time.Second

// route is the router's loop.
func (f *Fetcher) route(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, c := range f.box.take() {
			f.obey(ctx, c)
		}
		f.seek(ctx)
		if len(f.seeking) == 0 || f.asking {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(f.seekAt), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.box.wake:
		case <-timer.C:
		}
	}
}

// closeBox runs when the sessions are gone: Remove may not return before.
func (f *Fetcher) closeBox() {
	for _, c := range f.box.close() {
		if c.ack != nil {
			c.ack()
		}
	}
}

func (f *Fetcher) obey(ctx context.Context, c command) {
	if ctx.Err() != nil && c.ack == nil {
		return // what failed now failed because we end
	}
	switch {
	case c.assign != nil:
		for _, a := range c.assign {
			f.assign(a)
		}
	case c.ack != nil:
		f.remove(c.remove, c.ack)
	case c.let != nil:
		f.onLetGo(c.let)
	case c.moved != nil:
		f.onMoved(ctx, c.moved)
	case c.vacated != nil:
		f.onVacated(c.vacated)
	case c.lost != nil:
		f.onLost(c.lost, c.partitions)
	case c.leaders != nil:
		f.onLeaders(ctx, c.leaders)
	case c.failed != nil:
		if pl := f.where[c.failed.partition]; pl != nil && pl.t == c.failed {
			f.forget(c.failed.partition)
		}
	}
}

// assign makes a place for the partition. Where a session may still append for
// an assignment before, the new one waits for its word, and asks the destination
// where the log ends now.
func (f *Fetcher) assign(a Assignment) {
	if a.Context != nil && a.Context.Err() != nil {
		return
	}
	p := a.Stretch.Partition
	old := f.where[p]
	f.forget(p)
	pl := &place{t: newTracker(a, f.opts.PartitionBytes)}
	pl.t.leap = f.traits.Gaps && f.opts.RetentionGap == RetentionContinue
	f.where[p] = pl
	f.count.Add(1)
	vacated := func() { f.box.put(command{vacated: pl}) }
	if old == nil || old.session == nil {
		gone := f.letting[p]
		if gone == nil {
			f.look(pl, time.Now(), false)
			return
		}
		pl.t.phase, pl.leaving = learning, true
		f.spawn(func() {
			<-gone
			vacated()
		})
		return
	}
	pl.t.phase = learning
	pl.session, pl.leaving = old.session, true
	old.session.box.put(message{remove: []cluster.Partition{p}, ack: vacated})
}

func (f *Fetcher) onVacated(pl *place) {
	if f.where[pl.t.partition] == pl {
		pl.session, pl.leaving = nil, false
		f.look(pl, time.Now(), false)
	}
}

func (f *Fetcher) forget(p cluster.Partition) {
	if f.where[p] != nil {
		delete(f.where, p)
		f.count.Add(-1)
	}
}

// remove acknowledges when every session has let go, those too that were told to by
// an earlier removal.
func (f *Fetcher) remove(ps []cluster.Partition, ack func()) {
	at := map[*session][]cluster.Partition{}
	var waits []chan struct{}
	for _, p := range ps {
		if gone := f.letting[p]; gone != nil {
			waits = append(waits, gone)
		}
		if pl := f.where[p]; pl != nil && pl.session != nil {
			at[pl.session] = append(at[pl.session], p)
		}
		f.forget(p)
	}
	for s, ps := range at {
		gone := make(chan struct{})
		for _, p := range ps {
			f.letting[p] = gone
		}
		waits = append(waits, gone)
		left := func() {
			close(gone)
			f.box.put(command{let: &letGo{ps, gone}})
		}
		if !s.box.put(message{remove: ps, ack: left}) {
			left()
		}
	}
	if len(waits) == 0 {
		ack()
		return
	}
	f.spawn(func() {
		for _, gone := range waits {
			<-gone
		}
		ack()
	})
}

// letGo says that a session has let go of partitions that were removed.
type letGo struct {
	partitions []cluster.Partition
	gone       chan struct{} // which was closed
}

func (f *Fetcher) onLetGo(l *letGo) {
	for _, p := range l.partitions {
		if f.letting[p] == l.gone {
			delete(f.letting, p)
		}
	}
}

// onMoved takes a partition to the leader the answer named, or looks for it.
func (f *Fetcher) onMoved(ctx context.Context, m *moved) {
	pl := f.where[m.t.partition]
	if pl == nil || pl.t != m.t {
		return
	}
	pl.t = m.t.again()
	pl.session, pl.leaving = nil, false
	if m.to.Broker >= 0 && m.to.Broker != m.from.broker && pl.t.attempts <= trustHints {
		pl.t.leader = m.to
		f.join(ctx, pl, m.to)
		return
	}
	var delay time.Duration // the first look is at once
	if n := pl.t.attempts; n > 1 {
		delay = backoffAfter(n-1, f.opts.BackoffMin, slowestMove)
	}
	f.look(pl, time.Now().Add(delay), true)
}

// onLost has the leaders of a lost broker's partitions looked up; those that did
// not move stay where they are and the session tries again by itself.
func (f *Fetcher) onLost(s *session, ps []cluster.Partition) {
	now := time.Now()
	for _, p := range ps {
		if pl := f.where[p]; pl != nil && pl.session == s {
			f.look(pl, now, true)
		}
	}
}

// settle brings a partition to its leader's session, if it is not there.
func (f *Fetcher) settle(ctx context.Context, pl *place, leader cluster.Leader) {
	s := pl.session
	switch {
	case s == nil:
		pl.t.leader = leader
		f.join(ctx, pl, leader)
	case s.broker == leader.Broker || pl.leaving:
	default:
		// The session stays the place's until it has let go: Remove waits for it.
		pl.leaving = true
		t := pl.t
		s.box.put(message{remove: []cluster.Partition{t.partition}, ack: func() {
			f.box.put(command{moved: &moved{t: t, from: s, to: leader}})
		}})
	}
}

func (f *Fetcher) join(ctx context.Context, pl *place, leader cluster.Leader) {
	s := f.sessions[leader.Broker]
	if s == nil {
		s = newSession(f, leader.Broker)
		f.sessions[leader.Broker] = s
		f.brokers.Add(1)
		f.group.Go(func() error { return s.run(ctx) })
		f.group.Go(func() error { return s.askLoop(ctx) })
	}
	pl.session = s
	s.box.put(message{add: pl.t})
}
