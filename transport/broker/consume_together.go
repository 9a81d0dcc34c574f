package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

const (
	// awayFor is how long a real broker is not asked again for a partition of which
	// it has no replica; it is also how long its word counts that the client may
	// read it.
	awayFor = 5 * time.Second
	// togetherBytes and sideBytes bound what one answer brings into memory, of the
	// real broker of a connection and of a follower; a first batch may be larger.
	togetherBytes = 4 << 20
	sideBytes     = 1 << 20
	// roundWait is how long one of several brokers may hold back the others' records.
	roundWait = 100 * time.Millisecond
)

// consumeTogether answers with the records of several brokers: the real broker of
// this connection, and followers that have what it has not. Clients older than
// version 11 come here in any case, as followers do not answer them.
func (c *client) consumeTogether(ctx context.Context, h header, from *kmsg.FetchRequest, parts []wanted) error {
	c.consumer.remember()
	until := time.Now().Add(time.Duration(max(from.MaxWaitMillis, 0)) * time.Millisecond)
	for {
		began := time.Now()
		r := round{client: c, from: from, answers: make(map[fetchKey]kmsg.FetchResponseTopicPartition)}
		if err := r.run(ctx, h, parts, until); err != nil {
			r.release()
			return err
		}
		if left := time.Until(until); !r.full && left > 0 && ctx.Err() == nil {
			r.release()
			pause(ctx, min(left, fetchPause-time.Since(began)))
			continue
		}
		err := c.reply(h, r.response(parts), h.version)
		r.release()
		return err
	}
}

// remember forgets who is away when nobody asks for it any more.
func (s *consumer) remember() {
	for name := range s.away {
		if _, ok := s.index[name]; !ok {
			delete(s.away, name)
		}
	}
}

// round is one question to each broker, and what they said.
type round struct {
	client  *client
	from    *kmsg.FetchRequest
	here    []wanted           // for the real broker of the connection
	there   map[int32][]wanted // for followers
	answers map[fetchKey]kmsg.FetchResponseTopicPartition
	full    bool // there is something to tell
	free    func()
}

func (r *round) release() {
	if r.free != nil {
		r.free()
		r.free = nil
	}
}

func (r *round) run(ctx context.Context, h header, parts []wanted, until time.Time) error {
	r.spread(parts)
	wait := time.Until(until)
	if len(r.there) > 1 || len(r.there) == 1 && len(r.here) > 0 {
		wait = min(wait, roundWait)
	}
	said := make(chan side, len(r.there))
	var asking sync.WaitGroup
	defer asking.Wait()
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	for broker, some := range r.there {
		conn, err := r.client.side(ctx, broker)
		if err != nil {
			said <- side{broker, some, nil, err}
			continue
		}
		asking.Go(func() {
			resp, err := conn.DoVersion(bounded, r.request(sideVersion, byNames(r.client, some), wait, sideBytes), sideVersion)
			said <- side{broker, some, resp, err}
		})
	}
	if len(r.here) > 0 {
		if err := r.ask(ctx, h, wait); err != nil {
			return err
		}
	}
	for range r.there {
		r.takeSide(<-said)
	}
	return nil
}

// spread decides who is asked for what: the real broker of the connection first,
// since it says what the client may read, and followers for what it said that it
// has not.
func (r *round) spread(parts []wanted) {
	r.there = make(map[int32][]wanted)
	s := r.client.consumer
	for _, w := range parts {
		led, since := r.client.server.led.find(w.fetchKey), s.away[w.fetchKey]
		if led == nil || time.Since(since) > awayFor {
			r.here = append(r.here, w)
			continue
		}
		for _, id := range holders(led.State(), w.ask.FetchOffset) {
			if time.Since(s.failed[id]) > awayFor {
				r.there[id] = append(r.there[id], w)
				break
			}
		}
	}
}

// request asks one of several for its part.
func (r *round) request(version int16, parts []wanted, wait time.Duration, most int32) *kmsg.FetchRequest {
	req := fetchRequest(r.from, version, parts)
	req.MaxWaitMillis = int32(max(wait.Milliseconds(), 0))
	req.MaxBytes = max(1, min(req.MaxBytes/int32(1+len(r.there)), most))
	if len(r.there) > 0 {
		req.MinBytes = min(req.MinBytes, 1)
	}
	return req
}

// ask asks the real broker of the connection.
func (r *round) ask(ctx context.Context, h header, wait time.Duration) error {
	c := r.client
	resp := kmsg.NewPtrFetchResponse()
	free, err := c.ask(ctx, h, r.request(max(h.version, fetchFromFollower), r.here, wait, togetherBytes), resp)
	if err != nil {
		return err
	}
	r.free = free
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			name := fetchKey{t.TopicID, t.Topic, p.Partition}
			if !absent(p.ErrorCode) {
				delete(c.consumer.away, name)
			}
			if p.ErrorCode != 0 {
				head := fetchHead{p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica}
				c.judge(name, &head)
				p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica = head.code, head.highWatermark, head.lastStable, head.logStart, head.preferred
			}
			r.put(name, p)
		}
	}
	return nil
}

func (r *round) put(name fetchKey, p kmsg.FetchResponseTopicPartition) {
	r.answers[name] = p
	if p.ErrorCode != 0 || len(p.RecordBatches) > 0 || p.PreferredReadReplica >= 0 || p.DivergingEpoch.Epoch >= 0 {
		r.full = true
	}
}

// side is what a follower said, asked by ourselves for a client who may read it.
type side struct {
	broker int32
	asked  []wanted
	resp   kmsg.Response
	err    error
}

// takeSide takes records. What went wrong between the follower and us is no affair of
// the client's, and is asked for again.
func (r *round) takeSide(s side) {
	c := r.client
	resp, _ := s.resp.(*kmsg.FetchResponse)
	if s.err != nil || resp.ErrorCode != 0 {
		c.server.cfg.Logger.Debug("a follower cannot be asked for records", "broker", s.broker, "error", s.err)
		c.fail(s.broker)
		return
	}
	got := make(map[cluster.Partition]kmsg.FetchResponseTopicPartition)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			got[cluster.Partition{Topic: t.Topic, Partition: p.Partition}] = p
		}
	}
	for _, w := range s.asked {
		led := c.server.led.find(w.fetchKey)
		if led == nil {
			continue
		}
		_, name := led.ID()
		p, ok := got[name]
		switch wrong := epochCode(w.ask.CurrentLeaderEpoch, led.Epoch()); {
		case !ok:
		case p.ErrorCode == 0:
			p.PreferredReadReplica = -1
			r.put(w.fetchKey, p)
		case wrong != 0:
			p.ErrorCode = wrong
			r.put(w.fetchKey, p)
		case p.ErrorCode == int16(codeTopicAuthorization) && r.from.Version >= fetchFromFollower:
			// We may not read it; the client may, over there.
			r.put(w.fetchKey, emptyFetch(w.ask.Partition, led.State(), s.broker))
		case p.ErrorCode == int16(codeOffsetOutOfRange) && !reaches(led.State(), w.ask.FetchOffset):
			r.put(w.fetchKey, p)
		}
	}
}

// emptyFetch is an answer without records.
func emptyFetch(partition int32, s lead.State, preferred int32) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.PreferredReadReplica, p.HighWatermark = partition, preferred, -1
	if s.Phase == lead.Leading {
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset = s.HighWatermark, readable(s, 1), s.LogStart
	}
	return p
}

// response has all partitions, in the order of the request.
func (r *round) response(parts []wanted) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.SessionID = r.client.consumer.id
	for _, w := range parts {
		p, ok := r.answers[w.fetchKey]
		if led := r.client.server.led.find(w.fetchKey); !ok && led != nil {
			p, ok = emptyFetch(w.ask.Partition, led.State(), -1), true
		}
		if !ok {
			continue
		}
		if p.RecordBatches == nil {
			p.RecordBatches = []byte{} // null is an error to some clients
		}
		last := len(resp.Topics) - 1
		if last < 0 || resp.Topics[last].Topic != w.name || resp.Topics[last].TopicID != w.topic {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = w.name, w.topic
			resp.Topics = append(resp.Topics, t)
			last++
		}
		resp.Topics[last].Partitions = append(resp.Topics[last].Partitions, p)
	}
	return resp
}
