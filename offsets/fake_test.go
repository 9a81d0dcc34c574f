package offsets

import (
	"context"
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// side is a cluster's groups in memory.
type side struct {
	groups           []cluster.Group
	of               map[string]CommittedAnswer
	groupsErr, ofErr error
	refuse           map[string]error
	commit           func(ctx context.Context, group string) error // before anything else is done

	mu        sync.Mutex
	asked     []string
	looks     int
	committed map[string][]cluster.Committed
}

func (s *side) Groups(context.Context) ([]cluster.Group, error) {
	s.looks++
	return s.groups, s.groupsErr
}

func (s *side) Committed(_ context.Context, names []string) ([]CommittedAnswer, error) {
	s.asked = names
	out := make([]CommittedAnswer, len(names))
	for i, n := range names {
		out[i] = s.of[n]
	}
	return out, s.ofErr
}

func (s *side) Commit(ctx context.Context, group string, offsets []cluster.Committed) error {
	if s.commit != nil {
		if err := s.commit(ctx, group); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuse[group]; err != nil {
		return err
	}
	if s.committed == nil {
		s.committed = map[string][]cluster.Committed{}
	}
	s.committed[group] = offsets
	if s.of == nil {
		s.of = map[string]CommittedAnswer{}
	}
	s.of[group] = CommittedAnswer{Offsets: offsets}
	return nil
}

// shares is a side that has share groups, or says that it has none.
type shares struct {
	*side
	share *side
}

func (s shares) ShareOffsets(ctx context.Context, names []string) ([]CommittedAnswer, error) {
	return s.share.Committed(ctx, names)
}

func (s shares) SetShareOffsets(ctx context.Context, group string, offsets []cluster.Committed) error {
	return s.share.Commit(ctx, group, offsets)
}

// logs are those of partitions 0 and 1.
func logs(hw int64) func(context.Context, []cluster.Partition) (map[cluster.Partition]Log, error) {
	return func(context.Context, []cluster.Partition) (map[cluster.Partition]Log, error) {
		return map[cluster.Partition]Log{part(0): log(0, hw), part(1): log(0, hw)}, nil
	}
}
