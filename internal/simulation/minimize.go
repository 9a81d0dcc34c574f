package simulation

import "slices"

// Minimize leaves steps out of a schedule as long as it still fails (delta debugging).
// fails is asked about each candidate, and has to play it several times if the order
// of goroutines matters.
func Minimize(s Schedule, fails func(Schedule) bool) Schedule {
	for size := (len(s.Steps) + 1) / 2; size >= 1; {
		less, ok := shorter(s, size, fails)
		s = less
		switch {
		case size == 1 && !ok:
			return simpler(s, fails)
		case !ok:
			size /= 2
		default:
			size = max(1, min(size, len(s.Steps)/2))
		}
	}
	return simpler(s, fails)
}

// shorter tries to leave out each piece of so many steps, from the end.
func shorter(s Schedule, size int, fails func(Schedule) bool) (Schedule, bool) {
	ok := false
	for at := len(s.Steps) - size; at > -size; at -= size {
		from, to := max(at, 0), at+size
		try := Schedule{s.Setup, append(slices.Clone(s.Steps[:from]), s.Steps[to:]...)}
		if to > from && fails(try) {
			s, ok = try, true
		}
	}
	return s, ok
}

// simpler makes what is left smaller: one partition, fewer records, no options.
func simpler(s Schedule, fails func(Schedule) bool) Schedule {
	try := func(change func(*Schedule)) {
		t := Schedule{s.Setup, slices.Clone(s.Steps)}
		change(&t)
		if t.String() != s.String() && fails(t) {
			s = t
		}
	}
	for i := range s.Setup.switches() {
		try(func(t *Schedule) { *t.Setup.switches()[i].on = false })
	}
	try(func(t *Schedule) {
		t.Setup.Partitions = 1
		t.Steps = slices.DeleteFunc(t.Steps, func(s Step) bool { return s.P > 0 })
	})
	for i := range s.Steps {
		for _, n := range []int64{0, 1, 2} {
			before := s.Steps[i].N
			try(func(t *Schedule) { t.Steps[i].N = min(n, t.Steps[i].N) })
			if s.Steps[i].N != before {
				break
			}
		}
		try(func(t *Schedule) { t.Steps[i].Size = 0 })
		try(func(t *Schedule) { t.Steps[i].Call = "" })
	}
	return s
}
