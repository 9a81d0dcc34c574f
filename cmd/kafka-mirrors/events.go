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
	"github.com/clustermirror/mirror/offsets"
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
		Producers: func(e mirror.ProducersEvent) {
			print(fmt.Sprintf("producers: ids from %d on are others at the destination, those batches are not the source's byte for byte", e.From))
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
		Config: func(e mirror.ConfigEvent) {
			for _, line := range configLines(e, all) {
				print(line)
			}
		},
		Sync: func(e mirror.SyncEvent) {
			for _, note := range e.Notes {
				print(note)
			}
		},
		Groups: func(e mirror.GroupsEvent) {
			for _, line := range groupLines(e, all) {
				print(line)
			}
		},
		Group: func(e mirror.GroupEvent) {
			if all || needsAnEye[e.Why] || e.Why == "" && needsAnEye[e.Was] {
				print(groupLine(e))
			}
		},
	}
}

func configLines(e mirror.ConfigEvent, all bool) (lines []string) {
	for _, a := range e.Changes {
		switch {
		case a.Drift:
			lines = append(lines, fmt.Sprintf("%s: somebody has changed a setting here: put back to %v", e.Topic, a))
		case all:
			lines = append(lines, fmt.Sprintf("%s: %v", e.Topic, a))
		}
	}
	return lines
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

// groupLines are those of the last copy, and with all of each one. What a copy that is not the last has left is told
// group by group.
func groupLines(e mirror.GroupsEvent, all bool) []string {
	if !e.Last && !all {
		return nil
	}
	line := fmt.Sprintf("groups: %s of %s copied", plural(int64(e.Offsets), "offset"), plural(int64(e.Groups), "group"))
	for _, kind := range []struct {
		n    int
		what string
	}{
		{offsets.Count(e.Clamped), "lower than committed"}, {offsets.Count(e.Held), "left, as the groups have moved by themselves"},
		{offsets.Count(e.Active), "left, as the groups have members"},
	} {
		if kind.n > 0 {
			line += fmt.Sprintf(", %s %s", thousands(int64(kind.n)), kind.what)
		}
	}
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	lines := []string{line}
	if !e.Last {
		return lines
	}
	for _, name := range slices.Sorted(maps.Keys(e.Failed)) {
		lines = append(lines, fmt.Sprintf("group %s not copied: %v", name, e.Failed[name]))
	}
	return lines
}

// needsAnEye are the reasons that do not pass by themselves.
var needsAnEye = map[mirror.LeftWhy]bool{mirror.LeftFailed: true, mirror.LeftHeld: true, mirror.LeftActive: true}

func groupLine(e mirror.GroupEvent) string {
	line := "group " + e.Group
	switch e.Why {
	case mirror.LeftFailed:
		return line + " not copied: " + e.Error
	case mirror.LeftHeld:
		line += " left where it is: it has moved by itself"
	case mirror.LeftActive:
		line += " left where it is: it has members at the destination"
	case mirror.LeftClamped:
		line += " is behind the source until its records are copied"
	case mirror.LeftExcluded:
		return line + " is excluded"
	default:
		return line + " is where it is at the source"
	}
	if len(e.Places) > 0 {
		p := e.Places[0]
		line += fmt.Sprintf(" (%v: %d, at the source %d", p.Partition, p.Destination, p.Source)
		if e.Count > 1 {
			line += fmt.Sprintf("; and %d more", e.Count-1)
		}
		line += ")"
	}
	return line
}

// ids are numbers one behind the other: "4, 7".
func ids(numbers []int64) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ", ")
}
