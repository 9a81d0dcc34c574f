package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Send writes all calls in one vectored write, in order. It blocks while the
// broker takes no more bytes, while another sender writes, and during a
// re-authentication. On error the connection is lost and every call's Done has
// been called, or is about to be: with ErrUnreachable when the broker cannot
// have a whole request, with ErrUnknownOutcome when it may.
func (c *Conn) Send(calls ...*Call) error {
	if len(calls) == 0 {
		return nil
	}
	if err := c.acquire(context.Background(), calls[0].Key); err != nil {
		refuseAll(calls, err)
		return err
	}
	entries, err := c.write(calls)
	c.release()
	if err == nil {
		return nil
	}
	return c.settle(calls, entries, err)
}

func refuseAll(calls []*Call, err error) {
	for _, call := range calls {
		call.Done(nil, err)
	}
}

// settle completes calls whose write failed. It is called without the token, as
// Done belongs to somebody else.
func (c *Conn) settle(calls []*Call, entries []*entry, err *Error) error {
	if entries == nil {
		refuseAll(calls, err)
		return err
	}
	c.fail(err)
	for _, e := range entries {
		if !e.unsent {
			return c.lost(e, err, time.Now())
		}
	}
	return err
}

// write sends the calls; the caller holds the token. With an error and no
// entries nothing was noted, and the calls are the caller's to refuse. With an
// error and entries, fail must be called.
func (c *Conn) write(calls []*Call) ([]*entry, *Error) {
	key := calls[0].Key
	if err := checkSizes(calls); err != nil {
		return nil, c.refuse(key, Protocol, err)
	}
	entries, ends, first := c.layOut(calls, time.Now())
	if why := c.enqueue(entries); why != nil {
		clear(c.vec)
		return nil, c.refuse(key, why.Cause, why.Err)
	}
	c.bound(first)
	n, err := c.writeAll(ends[len(ends)-1])
	clear(c.vec)

	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range entries {
		e.writing = false
		e.unsent = ends[i] > n
	}
	switch {
	case err != nil:
		return entries, &Error{Op: "write", Addr: c.addr, Cause: causeOf(err), Err: err}
	case c.err != nil: // the reader failed meanwhile and left our entries to us
		return entries, c.err
	}
	return entries, nil
}

var errRequestSize = errors.New("request longer than a frame can be")

func checkSizes(calls []*Call) error {
	for _, call := range calls {
		total := int64(0)
		for _, b := range call.Body {
			total += int64(len(b))
		}
		if total > math.MaxInt32-math.MaxInt16-16 {
			return errRequestSize
		}
	}
	return nil
}

// layOut builds the headers in c.head and the vector in c.vec, and gives the
// entries, the end of each call in the stream and the earliest deadline.
func (c *Conn) layOut(calls []*Call, now time.Time) ([]*entry, []int64, time.Time) {
	const fixed = 4 + 2 + 2 + 4 + 2 + 1
	need := len(calls) * (fixed + len(c.cfg.ClientID))
	if cap(c.head) < need {
		c.head = make([]byte, 0, need) // once for all calls: the vector points into it
	}
	head, vec := c.head[:0], c.vec[:0]
	entries, ends := make([]*entry, len(calls)), make([]int64, len(calls))
	var first time.Time
	var total int64
	for i, call := range calls {
		timeout := call.Timeout
		if timeout <= 0 {
			timeout = c.cfg.RequestTimeout
		}
		e := &entry{call: call, corr: c.corr, deadline: now.Add(timeout), writing: true}
		c.corr = (c.corr + 1) & math.MaxInt32
		if first.IsZero() || e.deadline.Before(first) {
			first = e.deadline
		}
		start := len(head)
		head = appendHeader(head, call, e.corr, c.cfg.ClientID)
		vec = append(vec, head[start:len(head):len(head)])
		size := int64(len(head) - start)
		for _, b := range call.Body {
			if len(b) > 0 {
				vec = append(vec, b)
				size += int64(len(b))
			}
		}
		binary.BigEndian.PutUint32(head[start:], uint32(size-4))
		total += size
		entries[i], ends[i] = e, total
	}
	c.head, c.vec = head, vec
	return entries, ends, first
}

// appendHeader lays out a request header, versions 0, 1 and 2, with room for the
// size in front.
func appendHeader(dst []byte, call *Call, corr int32, clientID string) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(call.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(call.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(corr))
	if call.Key == 7 && call.Version == 0 { // ControlledShutdown v0 alone has no client id
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
	dst = append(dst, clientID...)
	if call.Flexible {
		dst = append(dst, 0) // no tagged fields
	}
	return dst
}

// writeAll writes c.vec, total bytes, and gives how many were written.
func (c *Conn) writeAll(total int64) (int64, error) {
	if c.tcp != nil {
		vec := c.vec // WriteTo moves its receiver
		return vec.WriteTo(c.tcp)
	}
	return c.writeJoined(total)
}

const joinChunk = 256 << 10

// writeJoined is for connections without writev (TLS, a host's own): a Write per
// small piece would cost a TLS record each, so pieces are joined up to a chunk.
func (c *Conn) writeJoined(total int64) (int64, error) {
	frame := c.cfg.Frames.Get(int(min(total, joinChunk)))
	defer frame.Release()
	chunk := frame.Bytes()
	fill, written := 0, int64(0)
	flush := func(b []byte) error {
		n, err := c.nc.Write(b)
		written += int64(n)
		return err
	}
	for _, b := range c.vec {
		for len(b) > 0 {
			if fill == 0 && len(b) >= joinChunk {
				if err := flush(b); err != nil {
					return written, err
				}
				break
			}
			n := copy(chunk[fill:], b)
			fill, b = fill+n, b[n:]
			if fill < len(chunk) {
				continue
			}
			if err := flush(chunk); err != nil {
				return written, err
			}
			fill = 0
		}
	}
	if fill == 0 {
		return written, nil
	}
	return written, flush(chunk[:fill])
}
