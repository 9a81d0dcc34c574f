package statuspage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// shown is the page in texts.
type shown struct {
	Health, Error, Time, Totals string
	Mirrors                     []shownMirror
	Problems                    []shownProblem
	Hidden                      int // problems that are not shown
	Behind                      []shownPartition
	Events                      []shownEvent
}

type shownMirror struct {
	Name, Health, Way, Topics, States, Lag, LagTime, Rate, Records, Losses, Line, Area string
}

type shownProblem struct{ Mirror, What, State, Reason, Again string }

type shownPartition struct{ Mirror, What, Lag, LagTime, At string }

type shownEvent struct{ Time, Text string }

// problemRows and behindRows are how many lines the tables have.
const problemRows, behindRows = 100, 10

// view turns a status into texts. It is pure.
func view(s Status) shown {
	v := shown{Health: s.Health, Error: s.Error, Time: s.Time.Format("2006-01-02 15:04:05 MST")}
	topics, partitions, lag, rate := 0, 0, int64(0), 0.0
	var behind []shownPartition
	var lags []int64
	for _, m := range s.Mirrors {
		topics, partitions, lag, rate = topics+m.Status.Topics, partitions+m.Status.Partitions, lag+m.Status.Lag, rate+m.BytesPerSecond
		v.Mirrors = append(v.Mirrors, viewMirror(m))
		v.Problems = append(v.Problems, problems(m)...)
		for _, p := range m.Status.Worst {
			if p.Lag > 0 {
				behind, lags = append(behind, viewPartition(m, p)), append(lags, p.Lag)
			}
		}
	}
	v.Totals = fmt.Sprintf("%s, %s, %s, %s behind, %s/s", plural(len(s.Mirrors), "mirror"), plural(topics, "topic"), plural(partitions, "partition"),
		plural(lag, "record"), bytesOf(rate))
	if n := len(v.Problems) - problemRows; n > 0 {
		v.Problems, v.Hidden = v.Problems[:problemRows], n
	}
	order := make([]int, len(behind))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lags[b], lags[a]) })
	for _, i := range order[:min(len(order), behindRows)] {
		v.Behind = append(v.Behind, behind[i])
	}
	for _, e := range s.Events {
		v.Events = append(v.Events, shownEvent{e.Time.Format("01-02 15:04:05"), e.Text})
	}
	return v
}

func viewMirror(m Mirror) shownMirror {
	out := shownMirror{
		Name: m.Name, Health: m.Health, Way: cmp.Or(m.SourceID, m.Status.Source, "?") + " → " + cmp.Or(m.DestinationID, m.Status.Destination, "?"),
		Topics: thousands(m.Status.Topics), Lag: thousands(m.Status.Lag), LagTime: "–",
		Rate: bytesOf(m.BytesPerSecond) + "/s", Records: thousands(int64(m.RecordsPerSecond + 0.5)),
	}
	if m.LagSeconds != nil {
		out.LagTime = seconds(*m.LagSeconds)
	}
	var states []string
	for _, state := range slices.Sorted(maps.Keys(m.States)) {
		if n := m.States[state]; n > 0 {
			states = append(states, thousands(n)+" "+string(state))
		}
	}
	out.States = strings.Join(states, ", ")
	var losses []string
	if m.Status.Skipped > 0 {
		losses = append(losses, thousands(m.Status.Skipped)+" skipped")
	}
	if m.Status.Truncated > 0 {
		losses = append(losses, thousands(m.Status.Truncated)+" truncated")
	}
	out.Losses = strings.Join(losses, ", ")
	out.Line, out.Area = spark(m.Throughput)
	return out
}

// The size of a sparkline.
const sparkWidth, sparkHeight = 150.0, 28.0

// spark is a curve as the points of an SVG polyline, and the area below it. What was not sampled yet
// is left out at the left.
func spark(rates []float64) (line, area string) {
	if len(rates) < 2 {
		return "", ""
	}
	top := max(slices.Max(rates), 1)
	var b strings.Builder
	first := sparkWidth * (1 - float64(len(rates)-1)/float64(samples-1))
	for i, r := range rates {
		x := first + sparkWidth*float64(i)/float64(samples-1)
		y := 1 + (sparkHeight-2)*(1-r/top)
		fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
	}
	line = strings.TrimSuffix(b.String(), " ")
	return line, fmt.Sprintf("%.1f,%.1f %s %.1f,%.1f", first, sparkHeight, line, sparkWidth, sparkHeight)
}

// named is how many places one line names of those that have the same problem.
const named = 4

// problems are what is wrong with a mirror, the worst first; what is the same in many
// places is one line, with the time of the first of them.
func problems(m Mirror) (all []shownProblem) {
	type same struct {
		state, reason string
		retried       bool
	}
	lines, counts := map[same]int{}, map[same]int{}
	add := func(what, state, reason, again string) {
		key := same{state, reason, again != "" && again != needsRecover}
		at, known := lines[key]
		if counts[key]++; !known {
			lines[key] = len(all)
			all = append(all, shownProblem{m.Name, what, state, reason, again})
			return
		}
		if counts[key] <= named {
			all[at].What += ", " + what
		}
	}
	defer func() {
		for key, at := range lines {
			if more := counts[key] - named; more > 0 {
				all[at].What += fmt.Sprintf(" and %d more", more)
			}
		}
	}()
	if m.Reason != "" {
		add("the mirror", "does not run", m.Reason, again(m.RetryAt, m.Status.Time))
	}
	for _, p := range m.Status.Worst {
		if p.State == coordinator.StateFailed {
			when := needsRecover
			if p.Retriable {
				when = again(p.RetryAt, m.Status.Time)
			}
			add(p.Partition.String(), string(p.State), p.Reason, when)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Status.Refused)) {
		add(name, "refused", m.Status.Refused[name], "")
	}
	for _, p := range m.Status.Worst {
		if p.State != coordinator.StateFailed && p.Reason != "" {
			add(p.Partition.String(), string(p.State), p.Reason, again(p.RetryAt, m.Status.Time))
		}
	}
	for _, k := range m.Status.Syncs {
		if k.Error != "" {
			add(k.Kind, "not in step", k.Error, "")
		}
	}
	for _, name := range m.Status.Missing {
		add(name, "missing", "it is not at the source", "")
	}
	return all
}

// needsRecover: nobody tries it again by himself.
const needsRecover = "needs recover"

func again(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return "again in " + seconds(max(0, at.Sub(now).Seconds()))
}

func viewPartition(m Mirror, p mirror.PartitionStatus) shownPartition {
	out := shownPartition{Mirror: m.Name, What: p.Partition.String(), Lag: thousands(p.Lag), LagTime: "–",
		At: thousands(max(0, p.DestinationEnd)) + " of " + thousands(max(0, p.SourceEnd))}
	if p.NewestRecord != nil {
		out.LagTime = seconds(max(0, m.Status.Time.Sub(*p.NewestRecord).Seconds()))
	}
	return out
}

func thousands[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func plural[N int | int64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

func bytesOf(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f KB", n/1e3)
	}
	return fmt.Sprintf("%.0f B", n)
}

func seconds(s float64) string {
	switch d := time.Duration(s * float64(time.Second)); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	default:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
}
