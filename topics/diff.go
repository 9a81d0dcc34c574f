package topics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// A Plan is what has to happen so that the destination has the mirror's topics.
type Plan struct {
	Create []cluster.Topic // on the source, missing at the destination
	Grow   []cluster.Topic // on both, with fewer partitions at the destination; the source's description
	Ready  []cluster.Topic // on both; the source's description
	// Refused are topics that cannot be mirrored as they stand, with the reason.
	Refused map[string]error
	// Missing are literal names of the filter that the source does not have.
	Missing []string
}

// Diff compares the topics of both sides as far as they belong to the mirror. It
// is pure.
func Diff(source, destination []cluster.Topic, f *Filter) Plan {
	plan := Plan{Refused: map[string]error{}}
	there := make(map[string]cluster.Topic, len(destination))
	for _, t := range destination {
		there[t.Name] = t
	}
	literals := map[string]bool{}
	for _, n := range f.Literals() {
		literals[n] = true
	}
	for _, t := range source {
		if t.Internal || !f.Matches(t.Name) {
			continue
		}
		delete(literals, t.Name)
		d, ok := there[t.Name]
		switch {
		case !ok:
			plan.Create = append(plan.Create, t)
		case d.Partitions < t.Partitions:
			plan.Grow = append(plan.Grow, t)
		case d.Partitions > t.Partitions:
			plan.Refused[t.Name] = fmt.Errorf("topic %s: %w: destination has %d partitions, source has %d",
				t.Name, cluster.ErrRefused, d.Partitions, t.Partitions)
		default:
			plan.Ready = append(plan.Ready, t)
		}
	}
	byName := func(a, b cluster.Topic) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(plan.Create, byName)
	slices.SortFunc(plan.Grow, byName)
	slices.SortFunc(plan.Ready, byName)
	for n := range literals {
		plan.Missing = append(plan.Missing, n)
	}
	slices.Sort(plan.Missing)
	return plan
}
