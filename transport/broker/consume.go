package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/lead"
)

// The versions of Fetch in which followers answer consumers (KIP-392), in which
// answers have the format of today, and in which topics have ids.
const (
	fetchFromFollower = 11
	fetchMagic2       = 4
)

// fetchPause is how long an answer without records waits when a real broker gave an
// error at once, which we do not pass on: the client would ask again at once.
const fetchPause = 50 * time.Millisecond

// consume answers a consumer's fetch, for what we lead and for all the rest. The
// records come from the real broker of this connection when it has a replica, else
// from another one.
func (c *client) consume(ctx context.Context, h header, b []byte) error {
	req := kmsg.NewPtrFetchRequest()
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return err
	}
	replica := req.ReplicaID
	if h.version >= 15 {
		replica = req.ReplicaState.ID
	}
	if replica != -1 || h.version < fetchMagic2 {
		decoded()
		return c.pass(ctx, b)
	}
	if len(req.Rack) <= maxRack {
		c.remembered().rack = req.Rack
	}
	code, err := c.remembered().take(req, c.server.memory)
	req.Topics, req.ForgottenTopics = nil, nil
	decoded()
	switch {
	case err != nil:
		return err
	case code != 0:
		resp := kmsg.NewPtrFetchResponse()
		resp.ErrorCode = code
		return c.reply(h, resp, h.version)
	}
	parts := c.consumer.turn()
	c.server.begun(ctx, parts)
	for n := range parts {
		if led := c.server.led.find(parts[n].fetchKey); led != nil && parts[n].ask.CurrentLeaderEpoch == led.Epoch() {
			parts[n].ask.CurrentLeaderEpoch = -1 // the real broker may hear of it later than the client
		}
	}
	if h.version >= fetchFromFollower && len(c.consumer.away) == 0 {
		return c.consumeThrough(ctx, h, req, parts)
	}
	return c.consumeTogether(ctx, h, req, parts)
}

// judge puts our word in the place of a real broker's error for a partition that we
// lead. It reports whether the real broker has the partition but not what was asked
// for, yet.
func (c *client) judge(name fetchKey, p *fetchHead) (lags bool) {
	led := c.server.led.find(name)
	at, known := c.consumer.index[name]
	if led == nil || !known {
		return false
	}
	if c.server.lent && p.code != int16(codeOffsetOutOfRange) {
		return false
	}
	ask := c.consumer.wanted[at].ask
	s := led.State()
	code, away := consumed(p.code, ask.CurrentLeaderEpoch, ask.FetchOffset, s)
	if away {
		if ids := holders(s, ask.FetchOffset); c.redirect && len(ids) > 0 {
			p.preferred = nearest(ids, c.consumer.rack, c.server.rack)
		} else {
			c.consumer.away[name] = time.Now()
		}
	}
	if code == 0 && s.Phase == lead.Leading {
		p.highWatermark, p.lastStable, p.logStart = s.HighWatermark, readable(s, 1), s.LogStart
	}
	lags = !away && code == 0
	p.code = code
	return lags
}

// maxRack bounds what is kept of the name of a client's rack.
const maxRack = 256

// nearest is the first of brokers that is in a rack, or else the first of all.
func nearest(brokers []int32, rack string, of func(int32) string) int32 {
	for _, id := range brokers {
		if rack != "" && of != nil && of(id) == rack {
			return id
		}
	}
	return brokers[0]
}

// consumeThrough has the real broker answer, and passes its answer on as it comes,
// with our words in the places of its errors.
func (c *client) consumeThrough(ctx context.Context, h header, from *kmsg.FetchRequest, parts []wanted) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.real.Close() })
	defer stop()
	began := time.Now()
	if err := writeFrame(c.real, wrap(h, fetchRequest(from, h.version, parts))); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.real, head[:]); err != nil {
		return err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if int32(binary.BigEndian.Uint32(head[4:])) != h.correlation || size < 4 {
		return errNoAnswer
	}
	out := bufio.NewWriterSize(&slow{c.conn, c.server.cfg.FrameTimeout}, 16<<10)
	out.Write(head[:])
	lags := false
	r := fetchRelay{
		in: bufio.NewReaderSize(io.LimitReader(c.real, size-4), 16<<10), out: out, left: size - 4, version: h.version,
		session: c.consumer.id,
		change:  func(name fetchKey, p *fetchHead) { lags = c.judge(name, p) || lags },
	}
	if err := r.run(); err != nil {
		return err
	}
	if lags && r.records == 0 {
		pause(ctx, min(fetchPause, time.Duration(from.MaxWaitMillis)*time.Millisecond)-time.Since(began))
	}
	return out.Flush()
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
