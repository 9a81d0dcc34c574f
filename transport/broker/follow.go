package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// What real brokers send to a leader as its followers. That it is one of them stands
// in a request as a replica id of 0 or more; it is answered here, for what we lead
// and for what we do not: another broker would not say anything else.

// maxFetched bounds the records of one answer, whatever the follower bears.
const maxFetched = 16 << 20

// maxParked bounds how long a fetch may wait for news.
const maxParked = 30 * time.Second

// follow answers a request of a follower; done is false when it is another one.
func (c *client) follow(ctx context.Context, h header, req *request) (done bool, err error) {
	switch {
	case h.key == int16(kmsg.Fetch) && 12 <= h.version && h.version <= 18:
		return c.followerFetch(ctx, h, req)
	case h.key == int16(kmsg.ListOffsets) && 1 <= h.version && h.version <= 11,
		h.key == int16(kmsg.OffsetForLeaderEpoch) && 3 <= h.version && h.version <= 4:
		return c.followerAsks(ctx, h, req.bytes)
	}
	return false, nil
}

// untagged is a body without the tags of a flexible header, of which none is known.
func (h *header) untagged(flexible bool) ([]byte, error) {
	if !flexible {
		return h.body, nil
	}
	if len(h.body) == 0 || h.body[0] != 0 {
		return nil, fmt.Errorf("%w: %s with a tagged header", errFrame, kmsg.NameForKey(h.key))
	}
	return h.body[1:], nil
}

// decode reads a request, one of few at a time.
func (c *client) decode(ctx context.Context, h header, into kmsg.Request) (done func(), err error) {
	into.SetVersion(h.version)
	body, err := h.untagged(into.IsFlexible())
	if err != nil {
		return nil, err
	}
	select {
	case c.server.decoding <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	done = func() { <-c.server.decoding }
	if err := into.ReadFrom(body); err != nil {
		done()
		return nil, fmt.Errorf("%w: %s: %w", errFrame, kmsg.NameForKey(h.key), err)
	}
	return done, nil
}

// fetchTerms is what a fetch says beside the partitions.
type fetchTerms struct {
	began    time.Time
	deadline time.Time
	least    int // bytes that are worth an answer
	most     int
}

func termsOf(req *kmsg.FetchRequest, now time.Time) fetchTerms {
	wait := min(time.Duration(max(req.MaxWaitMillis, 0))*time.Millisecond, maxParked)
	return fetchTerms{began: now, deadline: now.Add(wait), least: int(max(req.MinBytes, 0)), most: int(min(max(req.MaxBytes, 0), maxFetched))}
}

// followerFetch answers a fetch with a replica id.
func (c *client) followerFetch(ctx context.Context, h header, req *request) (bool, error) {
	fetch := kmsg.NewPtrFetchRequest()
	decoded, err := c.decode(ctx, h, fetch)
	if err != nil {
		return false, err
	}
	replica, now := fetch.ReplicaID, time.Now()
	if h.version >= 15 {
		replica = fetch.ReplicaState.ID
	}
	if replica < 0 {
		decoded()
		return false, nil
	}
	if !c.proven(replica) {
		decoded() // others wait for it, and asking takes its time
		if may, err := c.admit(ctx, h, replica); err != nil {
			return false, err
		} else if !may {
			return true, c.pass(ctx, req.bytes)
		}
		fetch = kmsg.NewPtrFetchRequest()
		if decoded, err = c.decode(ctx, h, fetch); err != nil {
			return false, err
		}
	}
	terms := termsOf(fetch, now)
	session, code := c.server.sessions.begin(fetch, replica, now)
	decoded()
	c.server.memory.give(req.held) // it may be parked for long
	*req = request{}
	if session == nil {
		return true, c.writer.write(c.conn, c.server.cfg.FrameTimeout, h.correlation, &fetchAnswer{version: h.version, code: int16(code)})
	}
	defer c.server.sessions.end(session)
	return true, c.serve(ctx, h, session, terms)
}

// serve answers from a session as soon as there is something worth it.
func (c *client) serve(ctx context.Context, h header, s *fetchSession, terms fetchTerms) error {
	now := time.Now()
	look := func(f *followed, room int, first bool) entry { return c.look(ctx, s, f, now, room, first) }
	for {
		g, err := s.gather(look, terms.most)
		if err != nil {
			return err
		}
		hasty, begins := c.server.haste.look(now)
		until := terms.end(&g, hasty)
		late := len(s.parts) == 0 || !now.Before(until) && !(g.coming && s.full)
		if late || g.ready(terms.least) {
			g.told()
			err := c.writer.write(c.conn, c.server.cfg.FrameTimeout, h.correlation, &fetchAnswer{version: h.version, session: s.id, entries: g.entries})
			g.release()
			return err
		}
		g.passed()
		if next := now.Add(comingLook); g.coming && (s.full || next.Before(until)) {
			until = next
		}
		if !s.retry.IsZero() {
			until = earlier(until, s.retry)
		}
		if err := c.park(ctx, s, until, begins); err != nil {
			return err
		}
		now = time.Now()
	}
}

// look asks a partition what it has for the follower.
func (c *client) look(ctx context.Context, s *fetchSession, f *followed, now time.Time, room int, first bool) entry {
	p := c.server.led.find(f.fetchKey)
	s.watch(f, p) // before it is asked, so that no news is lost
	e := entry{fetchKey: f.fetchKey, of: f, release: func() {}, diverging: cluster.EpochEnd{Epoch: -1, EndOffset: -1}}
	if e.coming = p == nil && c.server.comes(f, now); e.coming {
		e.hold, e.mark, e.stable, e.start = true, -1, -1, -1
		return e
	}
	if p == nil {
		e.code, e.mark, e.stable, e.start = c.stranger(f.fetchKey), -1, -1, -1
		return e
	}
	ask := f.at
	ask.Now, ask.Strict, ask.Via = now, !first, s.watcher
	if int(ask.MaxBytes) > room {
		ask.MaxBytes = int32(room)
	}
	a := p.Fetch(ask)
	e.code, e.mark, e.stable, e.start, e.diverging = a.Code, a.HighWatermark, a.LastStable, a.LogStart, a.Diverging
	e.records, e.size, e.release, e.hold = a.Records, a.Size, a.Release, a.Hold
	if a.Elsewhere < 0 || a.Code != 0 {
		f.piece.drop()
	} else if a.Size == 0 {
		f.at.Now = now
		c.server.pieces.fill(ctx, &c.reads, s, f, &a, &e, room, first)
	}
	return e
}

const (
	// comingFor is how long a follower waits for a partition to be ours. One that is refused
	// comes again after replica.fetch.backoff.ms, a second.
	comingFor  = 2 * time.Second
	comingLook = 20 * time.Millisecond
)

// comes reports that a partition that we do not lead yet is worth waiting for.
func (s *Server) comes(f *followed, now time.Time) bool {
	soon := false
	if s.coming != nil {
		soon, _ = s.coming(f.fetchKey)
	}
	if !soon {
		f.awaited = time.Time{}
		return false
	}
	if f.awaited.IsZero() {
		f.awaited = now
	}
	return now.Sub(f.awaited) < comingFor
}

// The codes for partitions that are not here.
const (
	codeUnknownTopic   = int16(3)
	codeUnknownTopicID = int16(100)
)

// stranger is the code for a partition that we do not lead.
func (c *client) stranger(k fetchKey) int16 {
	switch {
	case k.topic.IsZero():
		return codeUnknownTopic
	case c.server.led.knows(k.topic):
		return lead.NotLeader
	}
	return codeUnknownTopicID
}

// park waits for news of a session until deadline, or that haste begins. An error ends
// the connection: the follower has hung up, or begun anew elsewhere.
func (c *client) park(ctx context.Context, s *fetchSession, deadline time.Time, begins <-chan struct{}) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	heard := make(chan error, 1)
	c.conn.SetReadDeadline(time.Time{})
	go func() { heard <- c.listen() }()
	err := error(nil)
	select {
	case <-s.watcher.Wake():
	case <-s.landed.wake:
	case <-begins:
	case <-timer.C:
	case <-s.gone:
		err = errSuperseded
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-heard:
		if err == nil { // the next request, sent before this one is answered
			return c.parkDeaf(ctx, s, timer.C, begins)
		}
		return err
	}
	c.conn.SetReadDeadline(time.Unix(1, 0))
	if lost := <-heard; err == nil && !errors.Is(lost, os.ErrDeadlineExceeded) {
		err = lost
	}
	return err
}

// parkDeaf waits when there is something to be read already.
func (c *client) parkDeaf(ctx context.Context, s *fetchSession, over <-chan time.Time, begins <-chan struct{}) error {
	select {
	case <-s.watcher.Wake():
	case <-s.landed.wake:
	case <-begins:
	case <-over:
	case <-s.gone:
		return errSuperseded
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// listen waits for a byte of the next request, or the end of the connection.
func (c *client) listen() error {
	var b [1]byte
	n, err := c.conn.Read(b[:])
	if n > 0 {
		c.early, err = append(c.early, b[:n]...), nil
	}
	return err
}

// followerAsks answers ListOffsets and OffsetForLeaderEpoch with a replica id.
func (c *client) followerAsks(ctx context.Context, h header, b []byte) (bool, error) {
	req := kmsg.RequestForKey(h.key)
	req.SetVersion(h.version)
	body, err := h.untagged(req.IsFlexible())
	if err != nil {
		return false, err
	}
	if len(body) < 4 || int32(binary.BigEndian.Uint32(body)) < 0 { // it comes first in both
		return false, nil
	}
	if may, err := c.admit(ctx, h, int32(binary.BigEndian.Uint32(body))); err != nil {
		return false, err
	} else if !may {
		return true, c.pass(ctx, b)
	}
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return false, err
	}
	defer decoded()
	var resp kmsg.Response
	switch req := req.(type) {
	case *kmsg.ListOffsetsRequest:
		resp = c.server.listOffsets(req)
	case *kmsg.OffsetForLeaderEpochRequest:
		resp = c.server.epochEnds(req)
	}
	return true, c.reply(h, resp, h.version)
}
