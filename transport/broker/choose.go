package broker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/internal/metalog"
)

// ErrNoID: every id of the range is somebody else's.
var ErrNoID = errors.New("no broker id of the range is free")

// choose gives the identity to register with: the one we have, unless its id has
// become somebody else's, or a new one with the first id of the range that nobody
// has. taken are ids that were refused or belong to controllers. fresh says that
// the identity is new and has to be stored before it is used.
//
// Only the log tells who somebody is: a controller gives the id of a broker whose
// session is over to anyone who asks, and a real broker that is down would lose
// its place in every in-sync set.
func choose(image metalog.Image, ids IDs, mine *Identity, taken map[int32]bool) (id Identity, fresh bool, err error) {
	if mine != nil && !taken[mine.Broker] && ids.First <= mine.Broker && mine.Broker <= ids.Last {
		if b, ok := image.Broker(mine.Broker); !ok || b.Incarnation == mine.Incarnation || slices.Contains(b.Directories, mine.Directory) {
			return *mine, false, nil
		}
	}
	named := make(map[int32]bool) // by partitions, registered or not
	for _, p := range image.Partitions() {
		for _, r := range p.Replicas {
			if ids.First <= r && r <= ids.Last {
				named[r] = true
			}
		}
	}
	for n := ids.First; n <= ids.Last && n >= 0; n++ {
		if _, ok := image.Broker(n); ok || taken[n] || named[n] {
			continue
		}
		return newIdentity(n), true, nil
	}
	return Identity{}, false, fmt.Errorf("%w: %d to %d", ErrNoID, ids.First, ids.Last)
}
