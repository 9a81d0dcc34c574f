package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// events turns what happens into lines: what needs an eye, and with all also what
// is as it should be. print is called from one goroutine.
func events(print func(string), all bool) mirror.Events {
	return mirror.Events{
		State: func(e mirror.StateEvent) {
			if all || e.To == coordinator.StateFailed || e.From == coordinator.StateFailed {
				print(stateLine(e))
			}
		},
		Stalled: func(e mirror.StalledEvent) {
			print(fmt.Sprintf("%v stalled: nothing copied for %v though the source has more", e.Partition, e.Since.Round(time.Second)))
		},
		Trimmed: func(e mirror.TrimmedEvent) {
			if all {
				print(fmt.Sprintf("%v trimmed: begins at %d now, as at the source", e.Partition, e.LogStart))
			}
		},
		Skipped: func(e mirror.SkippedEvent) {
			print(fmt.Sprintf("%v skipped: the source deleted offsets %v before they were copied", e.Partition, e.Span))
		},
		Truncated: func(e mirror.TruncatedEvent) {
			print(fmt.Sprintf("%v truncated: offsets %v go: %s", e.Partition, e.Span, e.Why))
		},
		Aborted: func(e mirror.AbortedEvent) {
			print(fmt.Sprintf("%v aborted: transactions that were open at the stop, of producer ids %s", e.Partition, ids(e.Producers)))
		},
		Topic: func(e mirror.TopicEvent) {
			switch {
			case e.Err != nil:
				print(fmt.Sprintf("%s refused: %v", e.Topic, e.Err))
			case e.Grown:
				print(e.Topic + " has more partitions now, as at the source")
			case all:
				print(e.Topic + " created")
			}
		},
		Groups: func(e mirror.GroupsEvent) {
			for _, line := range groupLines(e) {
				print(line)
			}
		},
	}
}

func stateLine(e mirror.StateEvent) string {
	line := fmt.Sprintf("%v %s -> %s", e.Partition, e.From, e.To)
	if e.Offset >= 0 {
		line += fmt.Sprintf(" at offset %d", e.Offset)
	}
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	return line
}

func groupLines(e mirror.GroupsEvent) []string {
	line := fmt.Sprintf("groups: %s of %s copied", plural(int64(e.Offsets), "offset"), plural(int64(e.Groups), "group"))
	if e.Clamped > 0 {
		line += fmt.Sprintf(", %s lower than committed", thousands(int64(e.Clamped)))
	}
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	lines := []string{line}
	for _, name := range slices.Sorted(maps.Keys(e.Failed)) {
		lines = append(lines, fmt.Sprintf("group %s not copied: %v", name, e.Failed[name]))
	}
	return lines
}

// ids are numbers one behind the other: "4, 7".
func ids(numbers []int64) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ", ")
}
