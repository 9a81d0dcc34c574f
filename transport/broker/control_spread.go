package broker

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// spread places replicas on real brokers as the cluster itself places them
// (StripedReplicaPlacer): every partition begins at the next rack and takes one
// broker of each rack in turn, so that its replicas lie in as many racks as there
// are and leaders and followers are even over brokers. After as many partitions
// as brokers the order is another one, so that not the same brokers go together
// for ever. Brokers that are fenced, shutting down, cordoned or ours get nothing.
type spread struct {
	racks  [][]int32
	placed int // partitions since the last shuffle
	total  int // brokers
	rand   *rand.Rand
}

func newSpread(i metalog.Image, us party, random *rand.Rand) *spread {
	byRack := make(map[string][]int32)
	s := &spread{rand: random}
	for b := range i.Brokers() {
		cordoned := len(b.Cordoned) > 0 && len(b.Cordoned) >= len(b.Directories)
		if !b.Fenced && !b.InControlledShutdown && !cordoned && us.real(b.ID) {
			byRack[b.Rack] = append(byRack[b.Rack], b.ID)
			s.total++
		}
	}
	for _, ids := range byRack {
		slices.Sort(ids)
		s.racks = append(s.racks, ids)
	}
	slices.SortFunc(s.racks, func(a, b []int32) int { return cmp.Compare(a[0], b[0]) })
	s.shuffle()
	return s
}

func (s *spread) shuffle() {
	s.placed = 0
	for _, list := range s.racks {
		s.rand.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	}
	s.rand.Shuffle(len(s.racks), func(a, b int) { s.racks[a], s.racks[b] = s.racks[b], s.racks[a] })
}

// next are the replicas of one more partition.
func (s *spread) next(replicas int) ([]int32, error) {
	if replicas < 1 || replicas > s.total {
		return nil, fmt.Errorf("%w: %d replicas, and %d brokers take new ones", cluster.ErrRefused, replicas, s.total)
	}
	if s.placed == s.total {
		s.shuffle()
	}
	out, taken := make([]int32, 0, replicas), make([]int, len(s.racks))
	for r := s.placed; len(out) < replicas; r++ {
		rack := r % len(s.racks)
		list := s.racks[rack]
		if taken[rack] == len(list) {
			continue
		}
		out = append(out, list[(s.placed/len(s.racks)+taken[rack])%len(list)])
		taken[rack]++
	}
	s.placed++
	return out, nil
}
