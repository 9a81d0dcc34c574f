package kafkatest

import (
	"sync"
	"time"
)

// Direction is seen from the client: Write goes to the server.
type Direction int

const (
	Read Direction = iota
	Write
)

// Link is the way to one address, with its faults. All of them act on open
// connections as well as on new ones and can be switched at any time. The zero
// value is not usable: see [Network.Link] and [NewProxy]. Safe for concurrent
// use.
type Link struct {
	mu        sync.Mutex
	blackhole bool
	refuse    bool
	rtt       time.Duration
	rate      int64 // bytes per second in each direction, 0 for no limit
	free      [2]time.Time
	changed   chan struct{} // closed and replaced at every change of the above
	shots     []*Shot
	conns     map[*conn]struct{}
	dials     int64
	bytes     [2]int64
	closed    bool
}

func newLink() *Link {
	return &Link{changed: make(chan struct{}), conns: make(map[*conn]struct{})}
}

// set changes the link under its lock and wakes whoever waits for a change.
func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Blackhole makes the link swallow everything: bytes stand still in both
// directions, ends of connections are not seen, and dials hang. Switched off,
// what was on its way arrives.
func (l *Link) Blackhole(on bool) { l.set(func() { l.blackhole = on }) }

// Refuse makes new dials fail with ECONNREFUSED; open connections go on.
func (l *Link) Refuse(on bool) { l.set(func() { l.refuse = on }) }

// Delay gives the link a round-trip time, half of it in each direction, and a
// capacity in bytes per second per direction, shared by its connections; zero
// is none. A connection holds as many bytes under way as that needs.
func (l *Link) Delay(rtt time.Duration, bytesPerSecond int64) {
	l.set(func() { l.rtt, l.rate = rtt, bytesPerSecond })
}

// Cut breaks all open connections at once, both ends see it. It returns how
// many there were.
func (l *Link) Cut() int {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.cut()
	}
	return len(conns)
}

// Conns returns how many connections are open.
func (l *Link) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Dials returns how many connections have been asked for, failed ones included.
func (l *Link) Dials() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

// Bytes returns how many bytes have entered the link in one direction.
func (l *Link) Bytes(d Direction) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes[d]
}

// frozen says whether nothing may arrive, and what tells of a change.
func (l *Link) frozen() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blackhole, l.changed
}

// room returns how many bytes one direction of a connection may hold.
func (l *Link) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	const undelayed, delayed = 256 << 10, 64 << 20
	switch {
	case l.rtt == 0:
		return undelayed
	case l.rate == 0:
		return delayed
	}
	return undelayed + int(l.rtt.Seconds()*float64(l.rate))
}

// arrival says when n bytes that enter the link now come out of it, and takes
// their share of its capacity.
func (l *Link) arrival(d Direction, n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes[d] += int64(n)
	sent := time.Now()
	if l.rate > 0 {
		if l.free[d].After(sent) {
			sent = l.free[d]
		}
		sent = sent.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
		l.free[d] = sent
	}
	return sent.Add(l.rtt / 2)
}
