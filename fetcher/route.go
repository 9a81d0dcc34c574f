package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// trustHints is how many moves in a row may follow the brokers' hints before the
// cluster is asked itself.
const trustHints = 3

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sought is the answer to a look for leaders.
type sought struct {
	places  []*place
	answers []LeaderAnswer
	err     error
}

// route is the router's loop.
func (f *Fetcher) route(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer f.closeBox()
	for {
		for _, c := range f.box.take() {
			f.obey(ctx, c)
		}
		f.seek(ctx)
		timer.Reset(max(time.Until(f.retryAt), time.Millisecond))
		if len(f.seeking) == 0 || f.asking {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.box.wake:
		case <-timer.C:
		}
	}
}

func (f *Fetcher) closeBox() {
	for _, c := range f.box.close() {
		if c.ack != nil {
			c.ack()
		}
	}
}

func (f *Fetcher) obey(ctx context.Context, c command) {
	switch {
	case c.assign != nil:
		for _, a := range c.assign {
			f.assign(a)
		}
	case c.ack != nil:
		f.remove(c.remove, c.ack)
	case c.moved != nil:
		f.onMoved(ctx, c.moved)
	case c.lost != nil:
		f.onLost(c.lost, c.partitions)
	case c.leaders != nil:
		f.onLeaders(ctx, c.leaders)
	case c.failed != nil:
		f.forget(*c.failed)
	}
}

func (f *Fetcher) assign(a Assignment) {
	p := a.Stretch.Partition
	if old := f.where[p]; old != nil && old.session != nil {
		old.session.box.put(message{remove: []cluster.Partition{p}})
	}
	f.forget(p)
	a.Progress.LogEnd.Store(a.Next)
	t := &tracker{
		partition: p, topicID: a.TopicID, board: a.Progress, stretch: a.Stretch, next: a.Next, lastEpoch: a.LastEpoch,
		epochs: []epochStart{{a.LastEpoch, 0}}, want: f.opts.PartitionBytes, trimmed: a.Trimmed,
	}
	t.stretch.New = false
	f.where[p] = &place{t: t}
	f.count.Add(1)
	f.look(f.where[p])
}

func (f *Fetcher) forget(p cluster.Partition) {
	if f.where[p] != nil {
		delete(f.where, p)
		f.count.Add(-1)
	}
}

// look puts a partition among those that need a leader.
func (f *Fetcher) look(pl *place) {
	if !pl.sought {
		pl.sought = true
		f.seeking = append(f.seeking, pl)
	}
}

// remove acknowledges when every session has let go.
func (f *Fetcher) remove(ps []cluster.Partition, ack func()) {
	at := map[*session][]cluster.Partition{}
	for _, p := range ps {
		if pl := f.where[p]; pl != nil && pl.session != nil {
			at[pl.session] = append(at[pl.session], p)
		}
		f.forget(p)
	}
	if len(at) == 0 {
		ack()
		return
	}
	left := make(chan struct{}, len(at))
	for s, ps := range at {
		if !s.box.put(message{remove: ps, ack: func() { left <- struct{}{} }}) {
			left <- struct{}{}
		}
	}
	n := len(at)
	f.spawn(func() {
		for range n {
			<-left
		}
		ack()
	})
}

// onMoved takes a partition to the leader the answer named, or looks for it.
func (f *Fetcher) onMoved(ctx context.Context, m *moved) {
	pl := f.where[m.t.partition]
	if pl == nil || pl.t != m.t {
		return
	}
	pl.t = m.t.again()
	pl.session = nil
	if m.to.Broker >= 0 && m.to.Broker != m.from.broker && pl.t.attempts <= trustHints {
		pl.t.leader = m.to
		f.join(ctx, pl, m.to)
		return
	}
	f.fresh = true
	f.retryAt = later(f.retryAt, time.Now().Add(min(f.opts.BackoffMin<<min(pl.t.attempts, 20), time.Second)))
	f.look(pl)
}

// again is the tracker for a partition that changes its session. Its position is
// the destination's to say: what the old session handed over may still land.
func (t *tracker) again() *tracker {
	return &tracker{
		partition: t.partition, topicID: t.topicID, board: t.board, stretch: t.stretch, next: t.next, lastEpoch: t.lastEpoch,
		epochs: t.epochs, leader: t.leader, want: t.want, trimmed: t.trimmed,
		attempts: t.attempts, failedAt: t.failedAt, corrupt: t.corrupt, phase: learning, unsure: true,
	}
}

// onLost has the leaders of a lost broker's partitions looked up; those that did
// not move stay where they are and the session tries again by itself.
func (f *Fetcher) onLost(s *session, ps []cluster.Partition) {
	f.fresh = true
	for _, p := range ps {
		if pl := f.where[p]; pl != nil && pl.session == s {
			f.look(pl)
		}
	}
}

// seek asks for the leaders of all partitions that need one, one look at a time.
func (f *Fetcher) seek(ctx context.Context) {
	if f.asking || len(f.seeking) == 0 || time.Now().Before(f.retryAt) {
		return
	}
	places := make([]*place, 0, len(f.seeking))
	var ps []cluster.Partition
	for _, pl := range f.seeking {
		pl.sought = false
		if f.where[pl.t.partition] == pl {
			places = append(places, pl)
			ps = append(ps, pl.t.partition)
		}
	}
	f.seeking = f.seeking[:0]
	if len(ps) == 0 {
		return
	}
	fresh := f.fresh
	f.asking, f.fresh = true, false
	f.spawn(func() {
		answers, err := f.source.Leaders(ctx, ps, fresh)
		f.box.put(command{leaders: &sought{places: places, answers: answers, err: err}})
	})
}

func (f *Fetcher) onLeaders(ctx context.Context, s *sought) {
	f.asking = false
	unled := false
	for i, pl := range s.places {
		if f.where[pl.t.partition] != pl {
			continue
		}
		a := LeaderAnswer{Err: s.err}
		if s.err == nil {
			a = s.answers[i]
		}
		if err := f.refuse(pl, &a); err != nil {
			f.evict(pl, err)
			continue
		}
		if a.Err != nil {
			pl.t.board.setTrouble(a.Err)
			f.look(pl)
			unled = true
			continue
		}
		f.settle(ctx, pl, a.Leader)
	}
	if !unled {
		f.rounds = 0
		return
	}
	f.fresh = true
	f.retryAt = time.Now().Add(min(f.opts.BackoffMin<<min(f.rounds, 20), f.opts.BackoffMax))
	f.rounds++
}

// refuse names what no later look can mend. It also turns a missing leader into
// an error.
func (f *Fetcher) refuse(pl *place, a *LeaderAnswer) error {
	if a.Err != nil {
		if !cluster.Retriable(a.Err) || errors.Is(a.Err, cluster.ErrAuthorization) {
			return a.Err
		}
		return nil
	}
	if want := pl.t.topicID; !want.IsZero() && !a.TopicID.IsZero() && a.TopicID != want {
		return fmt.Errorf("%w: id is %v, was %v", cluster.ErrTopicReplaced, a.TopicID, want)
	}
	if a.Leader.Broker < 0 {
		a.Err = fmt.Errorf("%w: partition has no leader", cluster.ErrUnavailable)
	}
	return nil
}

// evict takes a partition out for good.
func (f *Fetcher) evict(pl *place, err error) {
	p := pl.t.partition
	if pl.session != nil {
		pl.session.box.put(message{remove: []cluster.Partition{p}})
	}
	f.forget(p)
	pl.t.board.setTrouble(err)
	f.report.Failed(p, err)
}

// settle brings a partition to its leader's session, if it is not there.
func (f *Fetcher) settle(ctx context.Context, pl *place, leader cluster.Leader) {
	if s := pl.session; s != nil {
		if s.broker == leader.Broker {
			return
		}
		old := pl.t
		p := old.partition
		pl.session = nil
		s.box.put(message{remove: []cluster.Partition{p}, ack: func() {
			f.box.put(command{moved: &moved{t: old, from: s, to: leader}})
		}})
		return
	}
	pl.t.leader = leader
	f.join(ctx, pl, leader)
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
	s.box.put(message{add: []*tracker{pl.t}})
}
