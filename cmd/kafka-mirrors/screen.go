package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/clustermirror/mirror"
)

// quiet is how long nothing is printed, outside a terminal, while nothing changes.
const quiet = 10 * time.Second

// screen shows a status that changes and lines that stay. On a terminal the
// status is drawn in place, and a line that stays goes above it. Elsewhere a
// status is a line like any other, printed when something changed. It is safe
// for concurrent use.
type screen struct {
	streams

	mu      sync.Mutex
	drawn   []string // what stands at the bottom of the terminal now
	before  mirror.Status
	printed mirror.Status // the last one that became a line
	trouble []string      // the problems that were printed last
}

// stamp begins every line that stays.
func stamp(t time.Time) string { return t.Format(time.RFC3339) + " " }

// status shows how things stand.
func (s *screen) status(now mirror.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.before
	s.before = now
	if width := s.width(); width > 0 {
		s.erase()
		s.drawn = block(now, before, width)
		s.draw()
		return
	}
	list := problems(now, false)
	if !changed(now, s.printed) && slices.Equal(list, s.trouble) && now.Time.Sub(s.printed.Time) < quiet {
		return
	}
	fmt.Fprintln(s.out, stamp(now.Time)+statusLine(now, before))
	if !slices.Equal(list, s.trouble) {
		for _, p := range list {
			fmt.Fprintln(s.out, stamp(now.Time)+p)
		}
	}
	s.printed, s.trouble = now, list
}

// changed: more was copied, the lag, the partitions per state or what is lost are others.
func changed(now, before mirror.Status) bool {
	return now.Records != before.Records || now.Lag != before.Lag || health(now) != health(before) || states(now) != states(before) ||
		losses(now) != losses(before)
}

// end shows a last line in the place of the status.
func (s *screen) end(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintln(s.out, line)
}

// line prints one line that stays.
func (s *screen) line(text string) {
	s.Write([]byte(stamp(time.Now()) + printable(text) + "\n"))
}

// Write lets a logger print whole lines.
func (s *screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	drawn := s.drawn
	s.erase()
	n, err := s.err.Write(lines)
	s.drawn = drawn
	s.draw()
	return n, err
}

// draw leaves the cursor behind the last line of the status.
func (s *screen) draw() { io.WriteString(s.out, strings.Join(s.drawn, "\n")) }

// erase takes the status away: to its first line, and clear what is below.
func (s *screen) erase() {
	if len(s.drawn) == 0 {
		return
	}
	up := ""
	if n := rows(s.drawn, s.width()) - 1; n > 0 {
		up = fmt.Sprintf("\x1b[%dA", n)
	}
	io.WriteString(s.out, "\r"+up+"\x1b[J")
	s.drawn = nil
}

// rows is how many rows lines take: more than one each when the terminal was made
// narrower since they were drawn.
func rows(lines []string, width int) int {
	n := 0
	for _, l := range lines {
		n += max(1, (utf8.RuneCountInString(l)+width-1)/max(width, 1))
	}
	return n
}
