package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows how far something is: a bar on a terminal, elsewhere a line now and then.
type progress struct {
	streams
	what string // what is done, for the bar

	done, all int
	note      string
	drawn     bool
	told      time.Time
}

// at says how far it is.
func (p *progress) at(done, all int) {
	changed := done != p.done || all != p.all
	p.done, p.all = done, all
	p.draw(changed)
}

// remark says what else there is to know, once each.
func (p *progress) remark(note string) {
	changed := note != p.note
	p.note = note
	if p.width() > 0 {
		p.draw(changed)
	} else if changed && note != "" {
		p.line(note)
	}
}

func (p *progress) draw(changed bool) {
	if p.all == 0 || p.told.IsZero() {
		p.told = time.Now()
		if p.all == 0 {
			return
		}
	}
	width := p.width()
	switch {
	case width > 0:
		io.WriteString(p.out, "\r\x1b[K"+truncate(p.bar(width), width-1))
		p.drawn = true
	case changed && p.done < p.all && time.Since(p.told) >= quiet:
		p.told = time.Now()
		fmt.Fprintf(p.out, "%s: %s of %s partitions\n", p.what, thousands(int64(p.done)), thousands(int64(p.all)))
	}
}

// bar is the line on a terminal.
func (p *progress) bar(width int) string {
	const most = 30
	cells := min(most, max(width/3, 5))
	full := cells * p.done / max(p.all, 1)
	text := fmt.Sprintf("%s [%s%s] %s of %s partitions", p.what, strings.Repeat("=", full), strings.Repeat(" ", cells-full),
		thousands(int64(p.done)), thousands(int64(p.all)))
	if p.note != "" {
		text += ", " + printable(p.note)
	}
	return text
}

// line prints one that stays.
func (p *progress) line(text string) {
	p.end()
	fmt.Fprintln(p.out, printable(text))
}

// end takes the bar away.
func (p *progress) end() {
	if p.drawn {
		io.WriteString(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// lag says how much is still to be copied.
func (p *progress) lag(offsets int64) {
	text := fmt.Sprintf("%s: %s behind", p.what, plural(offsets, "record"))
	switch width := p.width(); {
	case width > 0:
		io.WriteString(p.out, "\r\x1b[K"+truncate(text, width-1))
		p.drawn = true
	case p.told.IsZero() || time.Since(p.told) >= quiet:
		p.told = time.Now()
		fmt.Fprintln(p.out, text)
	}
}
