package kafkatest

// Shot is a fault that happens once, at the next event that fits it.
type Shot struct {
	kind shotKind
	dir  Direction
	min  int
	done chan struct{}
}

type shotKind int

const (
	flipBit shotKind = iota
	cutAfterWrite
	cutBeforeAnswer
)

// Done is closed when the fault has happened.
func (s *Shot) Done() <-chan struct{} { return s.done }

// FlipBit flips one bit in the middle of the next piece of more than min
// bytes; pieces are at most 64 KiB, whatever the size of the write.
func (l *Link) FlipBit(d Direction, min int) *Shot {
	return l.arm(&Shot{kind: flipBit, dir: d, min: min})
}

// CutAfterWrite breaks a connection right after its next write of more than
// min bytes has been passed on in full: the server acts on it, the client
// never hears how it went.
func (l *Link) CutAfterWrite(min int) *Shot {
	return l.arm(&Shot{kind: cutAfterWrite, dir: Write, min: min})
}

// CutBeforeAnswer is [Link.CutAfterWrite] at a later moment: when the first
// bytes come back after such a write. It suits clients that send one request
// in several writes, and proves that the server has acted (with one request
// in flight).
func (l *Link) CutBeforeAnswer(min int) *Shot {
	return l.arm(&Shot{kind: cutBeforeAnswer, dir: Write, min: min})
}

func (l *Link) arm(s *Shot) *Shot {
	s.done = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shots = append(l.shots, s)
	return s
}

// fire returns and disarms the first shot of a kind that n bytes set off, nil
// if there is none. The caller closes done when the fault has been done.
func (l *Link) fire(kind shotKind, d Direction, n int) *Shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.shots {
		if s.kind == kind && s.dir == d && n > s.min {
			l.shots = append(l.shots[:i:i], l.shots[i+1:]...)
			return s
		}
	}
	return nil
}
