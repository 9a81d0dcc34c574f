package mirror

import (
	"cmp"
	"slices"

	"github.com/clustermirror/mirror/offsets"
)

// LeftWhy says why a group is not where it is at the source.
type LeftWhy string

// The reasons, worst first.
const (
	LeftFailed   LeftWhy = "failed"   // it could not be read or written
	LeftHeld     LeftWhy = "held"     // it has moved by itself at the destination
	LeftActive   LeftWhy = "active"   // it has members at the destination
	LeftClamped  LeftWhy = "clamped"  // the destination does not reach so far yet
	LeftExcluded LeftWhy = "excluded" // by Options.Groups
)

var leftOrder = []LeftWhy{LeftFailed, LeftHeld, LeftActive, LeftClamped, LeftExcluded}

// GroupsStatus is how the committed offsets of groups stood when they were last compared.
type GroupsStatus struct {
	Matched  int `json:"matched"` // groups that are to be copied
	Excluded int `json:"excluded"`
	Failed   int `json:"failed"`
	// Held, Active and Clamped count groups, HeldOffsets and so on their partitions.
	Held           int `json:"held"`
	HeldOffsets    int `json:"heldOffsets"`
	Active         int `json:"active"`
	ActiveOffsets  int `json:"activeOffsets"`
	Clamped        int `json:"clamped"`
	ClampedOffsets int `json:"clampedOffsets"`
	// Left are groups that are not where they are at the source, at most a hundred: those that
	// need looking at most come first.
	Left []GroupLeft `json:"left,omitempty"`
}

// GroupLeft is one group that is not where it is at the source.
type GroupLeft struct {
	Group string  `json:"group"`
	Why   LeftWhy `json:"why"`
	// Places are where, at most ten; Count is how many there are.
	Places []offsets.Place `json:"places,omitempty"`
	Count  int             `json:"count,omitempty"`
	Error  string          `json:"error,omitempty"`
	Err    error           `json:"-"`
}

// mostPlaces is how many places of a group are shown.
const mostPlaces = 10

// leftBy are the groups that a copy has left, one entry a group: the worst.
func leftBy(r offsets.Report) map[string]GroupLeft {
	left := map[string]GroupLeft{}
	for _, name := range r.Excluded {
		left[name] = GroupLeft{Group: name, Why: LeftExcluded}
	}
	for _, kind := range []struct { // the worst comes last
		why LeftWhy
		of  map[string][]offsets.Place
	}{{LeftClamped, r.Clamped}, {LeftActive, r.Active}, {LeftHeld, r.Held}} {
		for name, places := range kind.of {
			left[name] = GroupLeft{
				Group: name, Why: kind.why, Count: len(places), Places: slices.Clone(places[:min(len(places), mostPlaces)]),
			}
		}
	}
	for name, err := range r.Failed {
		left[name] = GroupLeft{Group: name, Why: LeftFailed, Error: err.Error(), Err: err}
	}
	return left
}

func compareLeft(a, b GroupLeft) int {
	return cmp.Or(slices.Index(leftOrder, a.Why)-slices.Index(leftOrder, b.Why), cmp.Compare(a.Group, b.Group))
}

// worstLeft are those that need looking at most, in order.
func worstLeft(left map[string]GroupLeft) []GroupLeft {
	var all []GroupLeft
	for _, l := range left {
		all = append(all, l)
	}
	slices.SortFunc(all, compareLeft)
	return slices.Clone(all[:min(len(all), worst)])
}

// tellLeft keeps what a round has left for Status, and tells of groups that are left for another
// reason than before.
func (m *Mirror) tellLeft(r offsets.Report) {
	left := leftBy(r)
	now := GroupsStatus{
		Matched: r.Matched, Excluded: len(r.Excluded), Failed: len(r.Failed), Held: len(r.Held), HeldOffsets: offsets.Count(r.Held),
		Active: len(r.Active), ActiveOffsets: offsets.Count(r.Active), Clamped: len(r.Clamped), ClampedOffsets: offsets.Count(r.Clamped),
		Left: worstLeft(left),
	}
	m.groups.mu.Lock()
	before := m.groups.left
	m.groups.left, m.groups.now = left, now
	m.groups.mu.Unlock()
	if m.opts.Events.Group == nil {
		return
	}
	for name, l := range left {
		if before[name].Why != l.Why {
			emit(m.events, m.opts.Events.Group, GroupEvent{Mirror: m.name, GroupLeft: l, Was: before[name].Why})
		}
	}
	for name, l := range before {
		if _, still := left[name]; !still && l.Why != LeftExcluded {
			emit(m.events, m.opts.Events.Group, GroupEvent{Mirror: m.name, GroupLeft: GroupLeft{Group: name}, Was: l.Why})
		}
	}
}

// groupsNow is how groups stood when they were last compared; nil before.
func (m *Mirror) groupsNow() *GroupsStatus {
	m.groups.mu.Lock()
	defer m.groups.mu.Unlock()
	if m.groups.left == nil {
		return nil
	}
	now := m.groups.now
	now.Left = slices.Clone(now.Left)
	return &now
}
