package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// problemLines is how many problems are shown below the status line.
const problemLines = 5

// statusLine is a mirror in one line; the rates are those since before, 0 where
// there is no before.
func statusLine(now, before mirror.Status) string {
	var perSecond, bytesPerSecond float64
	if d := now.Time.Sub(before.Time).Seconds(); !before.Time.IsZero() && d > 0 {
		// A partition that leaves the mirror takes its figures with it.
		perSecond = max(0, float64(now.Records-before.Records)/d)
		bytesPerSecond = max(0, float64(now.Bytes-before.Bytes)/d)
	}
	return fmt.Sprintf("%s: %s | lag %s records | %s MB/s, %s records/s | %s", now.Mirror, health(now),
		thousands(now.Lag), megabytes(bytesPerSecond), thousands(int64(perSecond+0.5)), states(now)+stamped(now)+losses(now))
}

// stamped counts the partitions whose log gets other leader epochs than the source's: ""
// where there are none.
func stamped(s mirror.Status) string {
	if s.Stamped == 0 {
		return ""
	}
	return " | " + thousands(int64(s.Stamped)) + " with own epochs"
}

// losses are the offsets that the destination lacks or has lost: "" where there are none.
func losses(s mirror.Status) string {
	text := ""
	if s.Skipped > 0 {
		text += " | " + thousands(s.Skipped) + " skipped"
	}
	if s.Truncated > 0 {
		text += " | " + thousands(s.Truncated) + " truncated"
	}
	return text
}

// health is "standby" while another process mirrors, and "starting" until the clusters have
// answered once, or failed to.
func health(s mirror.Status) string {
	if s.Standby {
		return "standby"
	}
	if s.Synced == nil && s.SyncError == "" {
		return "starting"
	}
	return s.Health
}

// states counts partitions: "2 topics, 11 MIRRORING, 1 FAILED".
func states(s mirror.Status) string {
	parts := []string{plural(int64(s.Topics), "topic")}
	for _, state := range slices.Sorted(maps.Keys(s.States)) {
		if n := s.States[state]; n > 0 {
			parts = append(parts, thousands(int64(n))+" "+string(state))
		}
	}
	return strings.Join(parts, ", ")
}

// totals is the last line of a mirror.
func totals(s mirror.Status, ran time.Duration) string {
	return fmt.Sprintf("%s: stopped after %v | %s, %s MB copied | lag %s records | %s", s.Mirror, ran.Round(time.Second),
		plural(s.Records, "record"), megabytes(float64(s.Bytes)), thousands(s.Lag), states(s)+stamped(s)+losses(s))
}

// problems are what is wrong, the worst first, one line each, at most
// problemLines. moments adds what is other text at each moment: when something is
// tried again, and how far long gaps are filled.
func problems(s mirror.Status, moments bool) []string {
	var lines []string
	hidden := 0
	add := func(line string) {
		if len(lines) == problemLines {
			hidden++
			return
		}
		lines = append(lines, printable(line))
	}
	for _, k := range s.Syncs {
		if k.Error != "" {
			add(k.Kind + ": " + k.Error)
		}
	}
	for _, p := range s.Worst {
		if p.State == coordinator.StateFailed || p.Reason != "" {
			again := ""
			if moments {
				again = retry(p, s.Time)
			}
			add(fmt.Sprintf("%v %s%s: %s", p.Partition, p.State, again, p.Reason))
		}
	}
	if moments {
		for _, p := range s.Worst {
			if p.Filling != nil {
				add(fmt.Sprintf("%v %v", p.Partition, p.Filling))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Refused)) {
		add(fmt.Sprintf("%s refused: %s", name, s.Refused[name]))
	}
	for _, name := range s.Missing {
		add(name + ": not at the source")
	}
	// The failed partitions that Status does not detail are not to be forgotten.
	if len(s.Worst) > 0 && s.Worst[len(s.Worst)-1].State == coordinator.StateFailed {
		hidden += max(0, s.States[coordinator.StateFailed]-len(s.Worst))
	}
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("and %s more", thousands(int64(hidden))))
	}
	return lines
}

func retry(p mirror.PartitionStatus, now time.Time) string {
	switch {
	case p.State != coordinator.StateFailed:
		return ""
	case !p.Retriable:
		return " (not tried again)"
	case p.RetryAt == nil:
		return ""
	}
	return fmt.Sprintf(" (try %d in %d s)", p.Attempts+1, max(0, int(p.RetryAt.Sub(now).Seconds()+0.5)))
}

// block is what a terminal of a width shows: the status line, the problems below
// it. A line never fills the width: a terminal might wrap it.
func block(now, before mirror.Status, width int) []string {
	lines := []string{truncate(statusLine(now, before), width-1)}
	for _, p := range problems(now, true) {
		lines = append(lines, truncate("  "+p, width-1))
	}
	return lines
}

// truncate cuts a line of printable characters to a number of columns.
func truncate(line string, columns int) string {
	columns = max(columns, 1)
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns-1]) + "…"
}

// printable makes one line of a text that came from elsewhere: what would move a
// cursor becomes a space.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// thousands groups digits: 1,234,567.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// megabytes of 1,000,000 bytes, three digits where there are few.
func megabytes(bytes float64) string {
	mb := bytes / 1e6
	switch {
	case mb < 10:
		return strconv.FormatFloat(mb, 'f', 2, 64)
	case mb < 100:
		return strconv.FormatFloat(mb, 'f', 1, 64)
	}
	return thousands(int64(mb + 0.5))
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}
