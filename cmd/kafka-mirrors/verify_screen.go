package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/verify"
)

// verifyScreen shows on a terminal how far a comparison is; elsewhere nothing.
type verifyScreen struct {
	streams
	total int // partitions

	mu    sync.Mutex
	began time.Time
	shown time.Time // when the line was drawn last
	drawn bool
	of    map[cluster.Partition]verify.Progress
}

func newVerifyScreen(s streams, total int) *verifyScreen {
	return &verifyScreen{streams: s, total: total, began: time.Now(), of: map[cluster.Partition]verify.Progress{}}
}

// redraw is how often the line is drawn at most.
const redraw = 200 * time.Millisecond

// progress is told by all comparisons.
func (s *verifyScreen) progress(p verify.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[p.Partition] = p
	width, now := s.width(), time.Now()
	if width == 0 || now.Sub(s.shown) < redraw {
		return
	}
	s.shown, s.drawn = now, true
	line := fmt.Sprintf("%s | %v at %s of %s", s.figures(), p.Partition, thousands(p.Offset), thousands(p.Span.To))
	fmt.Fprintf(s.out, "\r\x1b[K%s", truncate(printable(line), width-1))
}

// figures are those of all partitions.
func (s *verifyScreen) figures() string {
	done, records, bytes := 0, int64(0), int64(0)
	for _, p := range s.of {
		if p.Offset >= p.Span.To {
			done++
		}
		records += p.Records
		bytes += p.Bytes
	}
	rate := 0.0
	if d := time.Since(s.began).Seconds(); d > 0 {
		rate = float64(bytes) / d
	}
	return fmt.Sprintf("%d of %s | %s records, %s MB | %s MB/s", done, plural(int64(s.total), "partition"), thousands(records),
		megabytes(float64(bytes)), megabytes(rate))
}

// end takes the line away.
func (s *verifyScreen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

// summary is a last line, on a terminal.
func (s *verifyScreen) summary() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width() > 0 {
		fmt.Fprintf(s.err, "%s, in %v\n", s.figures(), time.Since(s.began).Round(time.Millisecond))
	}
}
