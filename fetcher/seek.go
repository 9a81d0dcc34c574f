package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// sought is the answer to a look for leaders.
type sought struct {
	places  []*place
	answers []LeaderAnswer
	err     error
}

// look puts a partition among those that need a leader. Each has its own time:
// one whose brokers disagree does not hold up the others (I10).
func (f *Fetcher) look(pl *place, at time.Time, fresh bool) {
	pl.fresh = pl.fresh || fresh
	if fresh && at.Before(f.freshAt) {
		at = f.freshAt
	}
	if !pl.sought {
		pl.sought, pl.seekAt = true, at
		f.seeking = append(f.seeking, pl)
	} else if at.Before(pl.seekAt) {
		pl.seekAt = at
	}
	if len(f.seeking) == 1 || pl.seekAt.Before(f.seekAt) {
		f.seekAt = pl.seekAt
	}
}

// seek asks for the leaders of all partitions that are due, one look at a time.
func (f *Fetcher) seek(ctx context.Context) {
	now := time.Now()
	if f.asking || len(f.seeking) == 0 || now.Before(f.seekAt) {
		return
	}
	due, fresh := f.due(now)
	if len(due) == 0 {
		return
	}
	ps := make([]cluster.Partition, len(due))
	for i, pl := range due {
		ps[i] = pl.t.partition
	}
	if fresh {
		f.freshAt = now.Add(f.opts.BackoffMin)
	}
	f.asking = true
	f.spawn(func() {
		answers, err := f.source.Leaders(ctx, ps, fresh)
		f.box.put(command{leaders: &sought{places: due, answers: answers, err: err}})
	})
}

// due takes the places out of seeking whose time has come.
func (f *Fetcher) due(now time.Time) (due []*place, fresh bool) {
	later := f.seeking[:0]
	for _, pl := range f.seeking {
		switch {
		case f.where[pl.t.partition] != pl:
			pl.sought = false
		case now.Before(pl.seekAt):
			if len(later) == 0 || pl.seekAt.Before(f.seekAt) {
				f.seekAt = pl.seekAt
			}
			later = append(later, pl)
		default:
			fresh = fresh || pl.fresh
			pl.sought, pl.fresh = false, false
			due = append(due, pl)
		}
	}
	clear(f.seeking[len(later):])
	f.seeking = later
	return due, fresh
}

func (f *Fetcher) onLeaders(ctx context.Context, s *sought) {
	f.asking = false
	now := time.Now()
	for i, pl := range s.places {
		if f.where[pl.t.partition] != pl {
			continue
		}
		a := LeaderAnswer{Err: s.err}
		if s.err == nil {
			a = s.answers[i]
		}
		if err := refuse(pl.t.topicID, &a); err != nil {
			f.evict(pl, err)
			continue
		}
		if a.Err != nil {
			f.unled(pl, a.Err, now)
			continue
		}
		pl.looks, pl.since = 0, time.Time{}
		f.settle(ctx, pl, a.Leader)
	}
}

// unled has a partition looked for again that has no leader, up to the retry
// budget. One that is still in a session is that session's affair.
func (f *Fetcher) unled(pl *place, err error, now time.Time) {
	if pl.looks == 0 {
		pl.since = now
	}
	if pl.session == nil {
		if now.Sub(pl.since) > f.opts.RetryBudget {
			f.evict(pl, err)
			return
		}
		pl.t.board.setTrouble(err)
	}
	f.look(pl, now.Add(backoffAfter(pl.looks, f.opts.BackoffMin, f.opts.BackoffMax)), true)
	pl.looks++
}

// refuse names what no later look can mend. It also turns a missing leader into
// an error.
func refuse(want cluster.TopicID, a *LeaderAnswer) error {
	if a.Err != nil {
		if !cluster.Retriable(a.Err) || errors.Is(a.Err, cluster.ErrAuthorization) {
			return a.Err
		}
		return nil
	}
	if !want.IsZero() && !a.TopicID.IsZero() && a.TopicID != want {
		return fmt.Errorf("%w: id is %v, was %v", cluster.ErrTopicReplaced, a.TopicID, want)
	}
	if a.Leader.Broker < 0 {
		a.Err = fmt.Errorf("%w: partition has no leader", cluster.ErrUnavailable)
	}
	return nil
}

// evict takes a partition out for good. A session that has it does so itself:
// nothing is handed over after Failed was told.
func (f *Fetcher) evict(pl *place, err error) {
	if pl.session != nil {
		pl.session.box.put(message{evict: &evicted{t: pl.t, err: err}})
		return
	}
	p := pl.t.partition
	f.forget(p)
	pl.t.board.setTrouble(err)
	f.report.Failed(p, err)
}

// backoffAfter doubles first with each of n errors, up to most.
func backoffAfter(n int, first, most time.Duration) time.Duration {
	return min(first<<min(n, 20), most)
}
