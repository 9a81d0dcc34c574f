package kafkatest

import (
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// maxPiece is the most that travels as one unit, so that a slow link delivers
// a large write bit by bit.
const maxPiece = 64 << 10

// piece is a part of one write on its way.
type piece struct {
	data []byte
	due  time.Time // not to be seen at the far end before
	// write is the size of the whole write on its last piece, 0 on others.
	write int
	err   error // ends the stream; data is empty then
}

// line is one direction of a connection: a queue whose pieces become visible
// when they are due. Sender and receiver never wait for each other except
// through capacity, so delay does not cost throughput.
type line struct {
	link *Link
	dir  Direction

	mu      sync.Mutex
	pieces  []piece
	size    int           // bytes in pieces
	closed  bool          // by the sender
	aborted error         // seen by both ends at once, pieces are lost
	changed chan struct{} // closed and replaced at every change
}

func newLine(l *Link, d Direction) *line {
	return &line{link: l, dir: d, changed: make(chan struct{})}
}

// broadcast wakes all waiters; mu is held.
func (l *line) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// push sends a copy of p, waiting for room until the deadline. write is as in
// piece. A piece larger than the room goes when the line is empty.
func (l *line) push(p []byte, write int, deadline <-chan struct{}) error {
	for {
		room := l.link.room()
		l.mu.Lock()
		if l.aborted != nil {
			defer l.mu.Unlock()
			return l.aborted
		}
		if l.closed {
			defer l.mu.Unlock()
			return net.ErrClosed
		}
		if l.size == 0 || l.size+len(p) <= room {
			defer l.mu.Unlock()
			due := l.link.arrival(l.dir, len(p))
			l.pieces = append(l.pieces, piece{data: slices.Clone(p), due: due, write: write})
			l.size += len(p)
			l.broadcast()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			return os.ErrDeadlineExceeded
		}
	}
}

// end is the sender's last word: nothing more can be sent, and the receiver
// sees err after everything sent so far.
func (l *line) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.aborted != nil {
		return
	}
	l.closed = true
	l.pieces = append(l.pieces, piece{err: err, due: l.link.arrival(l.dir, 0)})
	l.broadcast()
}

// abort fails both ends at once. The first abort counts.
func (l *line) abort(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.aborted == nil {
		l.aborted, l.pieces, l.size = err, nil, 0
		l.broadcast()
	}
}

// pop receives bytes of at most one piece into p. write is the size of the
// sender's write when its last byte was received, otherwise 0.
func (l *line) pop(p []byte, deadline <-chan struct{}) (n, write int, err error) {
	for {
		select {
		case <-deadline:
			return 0, 0, os.ErrDeadlineExceeded
		default:
		}
		frozen, thawed := l.link.frozen()
		l.mu.Lock()
		if l.aborted != nil {
			defer l.mu.Unlock()
			return 0, 0, l.aborted
		}
		changed, wait := l.changed, time.Duration(-1)
		if len(l.pieces) > 0 && !frozen {
			if wait = time.Until(l.pieces[0].due); wait <= 0 {
				defer l.mu.Unlock()
				return l.take(p)
			}
		}
		l.mu.Unlock()
		await(wait, changed, thawed, deadline)
	}
}

// take removes bytes from the first piece; mu is held.
func (l *line) take(p []byte) (n, write int, err error) {
	first := &l.pieces[0]
	if first.err != nil {
		return 0, 0, first.err // stays, for the next call
	}
	n = copy(p, first.data)
	first.data = first.data[n:]
	l.size -= n
	if len(first.data) == 0 {
		write = first.write
		l.pieces = l.pieces[1:]
		l.broadcast() // room
	}
	return n, write, nil
}

// await returns when one of the channels is closed or, if wait is not
// negative, that time is over.
func await(wait time.Duration, a, b, c <-chan struct{}) {
	var timeout <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-a:
	case <-b:
	case <-c:
	case <-timeout:
	}
}
