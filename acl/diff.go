package acl

import (
	"cmp"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// Owners are the mirrors, by name and sorted, that hold an access rule which one of them has
// created. A rule that is not here was made by others: no mirror deletes it (I12).
type Owners map[cluster.Binding][]string

// Changes are what brings a destination in step. Each rule is in one list at most; lists
// are sorted.
type Changes struct {
	Create []cluster.Binding // not at the destination; the mirror holds them from then on
	Hold   []cluster.Binding // another mirror has created them, and this one wants them too
	Delete []cluster.Binding // the source no longer has them, and no other mirror holds them
	// Release are no longer held by this mirror: another one still holds them, or somebody
	// has deleted them.
	Release []cluster.Binding
	// Left are held by this mirror and no longer at the source; nobody asked to delete them.
	Left []cluster.Binding
}

// Diff compares. A source without any rule is one that lost them rather than one that wants
// none: nothing is deleted for it. Rules that the filter leaves out are left alone.
func Diff(mirror string, source, destination []cluster.Binding, owners Owners, filter *Filter, remove bool) Changes {
	var ch Changes
	there := set(destination)
	wanted := map[cluster.Binding]bool{}
	for _, b := range source {
		if wanted[b] || !filter.Includes(b) {
			continue
		}
		wanted[b] = true
		switch held := owners[b]; {
		case !there[b]:
			ch.Create = append(ch.Create, b)
		case len(held) > 0 && !slices.Contains(held, mirror):
			ch.Hold = append(ch.Hold, b)
		}
	}
	for b, held := range owners {
		if wanted[b] || !slices.Contains(held, mirror) || !filter.Includes(b) {
			continue
		}
		switch {
		case !there[b]:
			ch.Release = append(ch.Release, b)
		case !remove || len(source) == 0:
			ch.Left = append(ch.Left, b)
		case len(held) > 1:
			ch.Release = append(ch.Release, b)
		default:
			ch.Delete = append(ch.Delete, b)
		}
	}
	for _, list := range [][]cluster.Binding{ch.Create, ch.Hold, ch.Delete, ch.Release, ch.Left} {
		slices.SortFunc(list, compare)
	}
	return ch
}

func set(bs []cluster.Binding) map[cluster.Binding]bool {
	m := make(map[cluster.Binding]bool, len(bs))
	for _, b := range bs {
		m[b] = true
	}
	return m
}

func compare(a, b cluster.Binding) int {
	return cmp.Or(
		cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.Name, b.Name), cmp.Compare(a.PatternType, b.PatternType),
		cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(a.Permission, b.Permission),
	)
}
