package broker

import (
	"slices"
	"testing"
	"time"
)

// TestBrokersHearOfTheElection at once: where the controller does not tell that a record counts before
// there is another one, there is one.
func TestBrokersHearOfTheElection(t *testing.T) {
	for version, want := range map[int16][]int32{17: {100}, 18: nil} {
		s := standBeside(t, startOther(t, "g", false), ledByOther)
		s.f.Offer(67, 0)
		s.f.Offer(1, version)
		now := time.Now()
		by := &standby{d: s.Destination, link: controller{quorum: s.m.quorum}, leads: leads{brokers: []int32{101}, after: map[int32]int{101: 1}}}
		by.fence(t.Context(), s.m.log.Image(), map[int32]word{101: {worker: true, heard: now.Add(-time.Minute)}}, now)
		by.link.drop()
		s.f.mu.Lock()
		if got := s.f.allotted; !slices.Equal(got, want) {
			t.Errorf("Fetch v%d: %v were given ids, want %v", version, got, want)
		}
		s.f.mu.Unlock()
		if len(s.fences()) != 1 {
			t.Errorf("Fetch v%d: fenced %d times", version, len(s.fences()))
		}
	}
}
