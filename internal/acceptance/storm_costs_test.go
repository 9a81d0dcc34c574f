package acceptance

import (
	"fmt"
	"strings"
	"time"
)

// costs are how long things stood still, by kind of event, in the order of the events.
type costs map[string][]cost

type cost struct{ readers, writers, others time.Duration }

func (c *costs) add(b blow, of cost) {
	if *c == nil {
		*c = make(costs)
	}
	name := blows[b.kind].name
	if strings.Contains(name, "the worker") && b.other {
		name += " (the one that stands by)"
	}
	(*c)[name] = append((*c)[name], of)
}

// String is one line for each kind that happened.
func (c *costs) String() string {
	var b strings.Builder
	for _, k := range blows {
		for _, name := range []string{k.name, k.name + " (the one that stands by)"} {
			if of := (*c)[name]; len(of) > 0 {
				fmt.Fprintf(&b, "%s: readers %s; writers at the source %s; topics of others %s\n", name,
					column(of, func(c cost) time.Duration { return c.readers }), column(of, func(c cost) time.Duration { return c.writers }),
					column(of, func(c cost) time.Duration { return c.others }))
			}
		}
	}
	return b.String()
}

func column(of []cost, figure func(cost) time.Duration) string {
	var all []string
	for _, c := range of {
		all = append(all, fmt.Sprintf("%.1f", figure(c).Seconds()))
	}
	return strings.Join(all, " ")
}
