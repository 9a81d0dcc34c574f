package wire

import (
	"syscall"
	"time"
)

// Reading is most of what a connection costs, and much of that is being woken for every
// segment of a large answer. So a reader who knows that more is to come asks the system
// (SO_RCVLOWAT) to be woken when so much is there, and for no longer than lowWaterWait.
const (
	lowWaterMark = 512 << 10 // bytes of a large answer; about what a processor's cache keeps until they are summed
	lowWaterMin  = 64 << 10  // below it one wait does
	lowWaterWait = 5 * time.Millisecond
)

// lowWater is the mark of one connection. It belongs to its reader.
type lowWater struct {
	c     *Conn
	raw   syscall.RawConn // nil: there is no mark to set
	set   func(fd uintptr)
	mark  int  // 1, or the bytes from which on we are woken
	tired bool // it took too long: no mark until the next answer
	want  int
	err   error
}

func newLowWater(c *Conn) *lowWater {
	l := &lowWater{c: c, mark: 1}
	if haveLowWater && c.tcp != nil { // records of TLS are read one by one anyway
		l.raw, _ = c.tcp.SyscallConn()
		l.set = func(fd uintptr) { l.err = setLowWater(fd, l.want) }
	}
	return l
}

// to sets the mark. What cannot be set is done without.
func (l *lowWater) to(n int) {
	if l.tired || l.raw == nil {
		n = 1
	}
	if n == l.mark {
		return
	}
	if n > 1 && l.mark == 1 {
		l.c.wakeIn(lowWaterWait)
	}
	l.want = n
	if err := l.raw.Control(l.set); err == nil && l.err == nil {
		l.mark = n
	} else if l.raw = nil; l.mark > 1 { // it was closed, else it could be set
		l.c.Close()
	}
}

// late is told that the wait has ended without the bytes.
func (l *lowWater) late() {
	l.tired = l.mark > 1
	l.to(1)
}

// rest is told how much of an answer is still to be read, and how much of that is not to
// be waited for.
func (l *lowWater) rest(n, here int) {
	switch {
	case n <= here:
	case n >= lowWaterMin:
		l.to(min(n, lowWaterMark))
	default:
		l.to(1)
	}
}

// next is told that an answer is to be read, and how much is here.
func (l *lowWater) next(here int) {
	l.tired = false
	l.rest(headSize, here)
}

// wakeIn moves the read deadline nearer; expired sets it back.
func (c *Conn) wakeIn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := time.Now().Add(d); c.armed.IsZero() || at.Before(c.armed) {
		c.armed = at
		c.nc.SetReadDeadline(at)
	}
}
