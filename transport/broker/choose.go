package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
)

// ErrNoID: every id of the range is somebody else's.
var ErrNoID = errors.New("no broker id of the range is free")

// errWaiting: an identity may be a dead process's, which takes time to tell.
var errWaiting = errors.New("waiting to see whether another process is dead")

// claimant is a process that wants an identity.
type claimant struct {
	name   string
	holder string // of this life
	ids    IDs
	taken  map[int32]bool // ids that were refused, or belong to controllers
	// Another process counts as dead when its broker is fenced for as long as fenced, or
	// not registered for as long as gone.
	fenced, gone time.Duration
}

// choice is the identity to have, and what is kept in its place now: nil for nothing.
type choice struct {
	now Kept
	was *Kept
}

// choose gives the identity to register with. It is pure; silent tells for how long
// nothing has been seen of one that is kept.
//
// First the one that we have, or had under our name. Then one whose process has ended
// in order, and one whose process is dead: partitions that name it wait for somebody to
// be it. At last a new one, with an id that nobody has.
//
// Only the log tells who somebody is: a controller gives the id of a broker whose
// session is over to anyone who asks, and a real broker that is down would lose
// its place in every in-sync set.
func (c claimant) choose(image metalog.Image, all []Kept, silent func(Kept) time.Duration) (choice, error) {
	all = slices.SortedFunc(slices.Values(all), func(a, b Kept) int { return cmp.Compare(a.Broker, b.Broker) })
	known := make(map[int32]bool)
	for _, k := range all {
		known[k.Broker] = true
	}
	usable := slices.DeleteFunc(slices.Clone(all), func(k Kept) bool { return !c.usable(image, k) })
	for _, ours := range []func(Kept) bool{
		func(k Kept) bool { return k.Holder == c.holder },
		func(k Kept) bool { return k.Name == c.name },
		func(k Kept) bool { return k.Holder == "" },
	} {
		if at := slices.IndexFunc(usable, ours); at >= 0 {
			return c.claim(usable[at]), nil
		}
	}
	waiting := false
	dead := func(k Kept, after time.Duration) bool {
		is := silent(k) >= after
		waiting = waiting || !is
		return is
	}
	for _, k := range usable {
		if b, ok := image.Broker(k.Broker); ok && b.Fenced && dead(k, c.fenced) {
			return c.claim(k), nil
		}
	}
	if waiting {
		return choice{}, errWaiting
	}
	if n, ok := c.free(image, known); ok {
		return choice{now: Kept{newIdentity(n), c.name, c.holder}}, nil
	}
	for _, k := range usable {
		if _, ok := image.Broker(k.Broker); !ok && dead(k, c.gone) {
			return c.claim(k), nil
		}
	}
	if waiting {
		return choice{}, errWaiting
	}
	return choice{}, fmt.Errorf("%w: %d to %d", ErrNoID, c.ids.First, c.ids.Last)
}

// claim has us as the holder of one that is kept.
func (c claimant) claim(k Kept) choice {
	now := k
	now.Name, now.Holder = c.name, c.holder
	return choice{now: now, was: &k}
}

// usable reports that an identity is one of our range, and the cluster knows nobody else
// under its id.
func (c claimant) usable(image metalog.Image, k Kept) bool {
	if c.taken[k.Broker] || k.Broker < c.ids.First || c.ids.Last < k.Broker {
		return false
	}
	b, ok := image.Broker(k.Broker)
	return !ok || k.is(b)
}

// is reports whether a broker of the log is this one.
func (id Identity) is(b *metalog.Broker) bool {
	return b.Incarnation == id.Incarnation || slices.Contains(b.Directories, id.Directory)
}

// free is the first id of the range that nobody has: no other is registered under it, or
// known to us, and no partition names it.
func (c claimant) free(image metalog.Image, known map[int32]bool) (int32, bool) {
	named := make(map[int32]bool)
	for _, p := range image.Partitions() {
		for _, r := range p.Replicas {
			if c.ids.First <= r && r <= c.ids.Last {
				named[r] = true
			}
		}
	}
	for n := c.ids.First; n <= c.ids.Last && n >= 0; n++ {
		if _, ok := image.Broker(n); !ok && !known[n] && !c.taken[n] && !named[n] {
			return n, true
		}
	}
	return 0, false
}

// silences are since when nothing is seen of identities that are kept.
type silences map[Kept]time.Time

// look takes in what is known now.
func (s silences) look(image metalog.Image, all []Kept, now time.Time) {
	for k := range s {
		if !slices.Contains(all, k) {
			delete(s, k)
		}
	}
	for _, k := range all {
		b, ok := image.Broker(k.Broker)
		if ok && k.is(b) && !b.Fenced {
			delete(s, k)
		} else if _, ok := s[k]; !ok {
			s[k] = now
		}
	}
}
