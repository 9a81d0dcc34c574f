package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// readBuffer is small on purpose: answers shorter than it share a read, and at
// most this much of a large one is copied twice; the rest is read straight into
// its frame.
const readBuffer = 16 << 10

// headSize are the bytes in front of every answer: its size, and the correlation id.
const headSize = 8

// patientReader reads the connection past read deadlines that no request in
// flight has reached. They are set when a request is sent and not taken back
// when it is answered, which would cost a timer change per answer.
type patientReader struct {
	c   *Conn
	low *lowWater
}

func (r patientReader) Read(p []byte) (int, error) {
	for {
		n, err := r.c.nc.Read(p)
		if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return n, nil
		}
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !r.c.expired() {
			r.low.late()
			continue
		}
		return n, err
	}
}

// readLoop delivers answers until the connection ends.
func (c *Conn) readLoop() {
	low := newLowWater(c)
	buffered := bufio.NewReaderSize(patientReader{c, low}, readBuffer)
	for {
		frame, e, err := c.readAnswer(buffered, low)
		if err != nil {
			var why *Error
			if !errors.As(err, &why) {
				why = &Error{Op: "read", Addr: c.addr, Cause: causeOf(err), Err: err}
			}
			c.fail(why)
			return
		}
		e.call.Done(frame, nil)
	}
}

func (c *Conn) readAnswer(r *bufio.Reader, low *lowWater) (*Frame, *entry, error) {
	low.next(r.Buffered())
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, err
	}
	size, err := answerSize(head, c.cfg.MaxFrame)
	if err != nil {
		return nil, nil, c.garbage(head, err)
	}
	// Before memory is spent on it: is this the answer that is due?
	sum, err := c.due(int32(binary.BigEndian.Uint32(head[4:])))
	if err != nil {
		return nil, nil, c.garbage(head, err)
	}
	frame := c.cfg.Frames.Get(size)
	if err := frame.readFrom(r, sum, low); err != nil {
		frame.Release()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, nil, err
	}
	e := c.pop()
	if e == nil { // closed while the frame was read; its call has been told
		frame.Release()
		return nil, nil, io.ErrUnexpectedEOF
	}
	skip, err := headerTags(frame.Bytes(), e.call)
	if err != nil {
		frame.Release()
		why := &Error{Op: "read", Addr: c.addr, Cause: Protocol, Err: err}
		e.call.Done(nil, c.lost(e, why, e.deadline))
		return nil, nil, why
	}
	frame.from = skip
	return frame, e, nil
}

// answerSize is the length of what follows size and correlation id.
func answerSize(head [headSize]byte, limit int32) (int, error) {
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > limit {
		return 0, fmt.Errorf("answer of %d bytes (limit %d)", size, limit)
	}
	return int(size) - 4, nil
}

// garbage is the error for bytes that are not an answer. A TLS alert record is
// what a TLS listener says to a client that does not speak TLS.
func (c *Conn) garbage(head [headSize]byte, err error) error {
	cause := Protocol
	if head[0] == 0x15 && head[1] == 3 && head[2] <= 4 {
		cause, err = TLS, errors.New("the listener speaks TLS")
	}
	return &Error{Op: "read", Addr: c.addr, Cause: cause, Err: err}
}

// due checks that corr is the correlation id of the oldest call in flight, and says
// whether its answer is to be summed.
func (c *Conn) due(corr int32) (sum bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return false, fmt.Errorf("answer %d to no request", corr)
	}
	if want := c.pending[0].corr; want != corr {
		return false, fmt.Errorf("answer %d where %d is due", corr, want)
	}
	return c.pending[0].call.Sum, nil
}

// pop takes the oldest call out of flight; nil when the connection has failed.
func (c *Conn) pop() *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.pending) == 0 {
		return nil
	}
	e := c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	if len(c.pending) == 0 {
		c.pending = nil
		if c.drained != nil {
			close(c.drained)
			c.drained = nil
		}
	}
	return e
}

var errHeader = errors.New("response header is cut short")

// headerTags gives the length of the tagged fields of a flexible response
// header, zero for others. ApiVersions answers never have them (KIP-511).
func headerTags(b []byte, call *Call) (int, error) {
	if !call.Flexible || call.Key == apiVersionsKey {
		return 0, nil
	}
	return skipTags(b)
}

// skipTags gives the length of a section of tagged fields.
func skipTags(b []byte) (int, error) {
	count, at := binary.Uvarint(b)
	if at <= 0 {
		return 0, errHeader
	}
	for ; count > 0; count-- {
		_, n := binary.Uvarint(b[at:])
		if n <= 0 {
			return 0, errHeader
		}
		at += n
		size, n := binary.Uvarint(b[at:])
		if n <= 0 || size > uint64(len(b)-at-n) {
			return 0, errHeader
		}
		at += n + int(size)
	}
	return at, nil
}
