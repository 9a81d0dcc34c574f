package fetcher

import "time"

// briefWait is how long a broker may hold an empty answer at first while a
// partition waits for room.
const briefWait = 5 * time.Millisecond

// ask sends the next request, if none is under way and there is something to ask
// for. The request is the session's again when its answer has arrived.
func (s *session) ask(now time.Time) {
	if s.asking || now.Before(s.retryAt) {
		return
	}
	if len(s.trackers) == 0 {
		s.hangUp()
		return
	}
	share := s.f.share()
	if !s.worth(share) {
		return
	}
	s.collect(now, share)
	req := &s.request
	req.MaxWait, req.MinBytes = s.wait(now), 1
	req.Committed = s.f.traits.Fills
	req.MaxBytes = s.f.budget.bound(s.respMax, s.f.brokers.Load())
	s.asking, s.opened, s.askedAt = true, true, now
	s.asks <- req // has room: nothing else is under way
}

// hangUp ends the connection of a session without partitions.
func (s *session) hangUp() {
	clear(s.queue)
	s.queue, s.gone = s.queue[:0], s.gone[:0]
	s.failures, s.retryAt = 0, time.Time{}
	if s.opened {
		s.opened = false
		s.asks <- nil
	}
}

// worth reports whether a request would ask for anything: as long as all that the
// broker knows of waits for the destination, it is not told so.
func (s *session) worth(share share) bool {
	looked := 0
	for _, t := range s.queue {
		switch {
		case !s.mine(t):
		case t.ready(share):
			return true
		case t.member:
			looked++
		}
	}
	return s.members > looked
}

// wait is how long the broker may sit on an empty answer. While a partition waits
// for room that is about as long as it has waited already: nothing tells the
// broker when there is room, and a destination that is dead is no reason to ask
// all the time.
func (s *session) wait(now time.Time) time.Duration {
	if s.waiting == 0 {
		return s.f.opts.MaxWait
	}
	return min(max(now.Sub(s.waitingSince), briefWait), s.f.opts.MaxWait)
}

// collect moves what is queued into the request.
func (s *session) collect(now time.Time, share share) {
	req := &s.request
	req.Changed, req.Forgotten = req.Changed[:0], req.Forgotten[:0]
	for _, t := range s.queue {
		t.queued = false
		if !s.mine(t) {
			continue
		}
		ready := t.ready(share)
		if waits := !ready && t.phase == fetching; waits != t.waiting {
			s.setWaiting(t, waits)
			s.waitingSince = now
		}
		switch {
		case ready && (t.dirty || !t.member):
			if !t.member {
				t.member = true
				s.members++
			}
			t.dirty, t.askedGen, t.asked = false, t.gen, t.from()
			req.Changed = append(req.Changed, Want{
				Partition: t.partition, TopicID: t.topicID, Offset: t.asked,
				LeaderEpoch: t.leader.Epoch, LastEpoch: t.lastEpoch, MaxBytes: t.ask(share),
			})
		case !ready && t.member:
			t.member, t.dirty, t.seen = false, true, s.answered
			s.members--
			req.Forgotten = append(req.Forgotten, t.partition)
		}
	}
	clear(s.queue)
	s.queue = s.queue[:0]
	for _, p := range s.gone {
		if t := s.trackers[p]; t == nil || !t.member {
			req.Forgotten = append(req.Forgotten, p)
		}
	}
	s.gone = s.gone[:0]
}

func (s *session) setWaiting(t *tracker, waits bool) {
	if t.waiting == waits {
		return
	}
	t.waiting = waits
	if waits {
		s.waiting++
	} else {
		s.waiting--
	}
}
