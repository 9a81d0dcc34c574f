package mirror

import (
	"context"
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// underWay are the partitions that something is being done to which must be over
// before anything else is done to them, even after it has been superseded.
type underWay struct {
	mu sync.Mutex
	of map[cluster.Partition]chan struct{}
}

// begin waits until nothing is under way for the partition and marks it, until end
// is called.
func (u *underWay) begin(ctx context.Context, p cluster.Partition) (end func(), err error) {
	mine := make(chan struct{})
	for {
		u.mu.Lock()
		other := u.of[p]
		if other == nil {
			if u.of == nil {
				u.of = map[cluster.Partition]chan struct{}{}
			}
			u.of[p] = mine
		}
		u.mu.Unlock()
		if other == nil {
			return func() {
				u.mu.Lock()
				delete(u.of, p)
				u.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// has reports whether something is under way for the partition.
func (u *underWay) has(p cluster.Partition) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[p] != nil
}

// wait until nothing is under way for any of the partitions.
func (u *underWay) wait(ctx context.Context, ps []cluster.Partition) error {
	for _, p := range ps {
		end, err := u.begin(ctx, p)
		if err != nil {
			return err
		}
		end()
	}
	return nil
}
