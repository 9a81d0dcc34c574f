package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// lend lets the destination complete its replicas from the source until ctx ends. After
// back nothing of the source is used.
func (m *Mirror) lend(ctx context.Context) (back func()) {
	if m.can.refiller == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(ctx)
	var mu sync.Mutex
	var using sync.WaitGroup // nobody joins once over is set
	over := false
	m.can.refiller.RefillFrom(m.name, func(asked context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
		mu.Lock()
		if over {
			mu.Unlock()
			return nil, ErrNotRunning
		}
		using.Add(1)
		mu.Unlock()
		defer using.Done()
		asked, stop := context.WithCancel(asked)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		return m.refill(asked, p, offset, maxBytes)
	})
	return func() {
		mu.Lock()
		over = true
		mu.Unlock()
		end()
		m.can.refiller.RefillFrom(m.name, nil)
		using.Wait()
	}
}

// refill reads records of the source again that the destination's log has had. What is
// handed on is the same (I1): of the topic that is mirrored, and of the source epoch that
// the history has there.
func (m *Mirror) refill(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	s, ok := m.coord.Snapshot(p)
	switch {
	case !ok || s.State == coordinator.StateUnknown:
		return nil, fmt.Errorf("%v: %w", p, cluster.ErrUnknownTopic)
	case s.State == coordinator.StateStopping || s.State == coordinator.StateStopped:
		return nil, fmt.Errorf("%v: %w: it is %s, and the log may have records of its own", p, cluster.ErrRefused, s.State)
	case s.Unproven || s.TopicID.IsZero():
		return nil, fmt.Errorf("%v: %w: nothing proves that the source has the same records still", p, errors.ErrUnsupported)
	}
	b, err := m.source.Read(ctx, p, offset, maxBytes)
	if err != nil {
		return nil, err
	}
	leaders, err := m.source.Leaders(ctx, []cluster.Partition{p}, true) // after it, as an id does not come back
	if err == nil {
		err = leaders[0].Err
	}
	if err != nil {
		return nil, err
	}
	if id := leaders[0].TopicID; id != s.TopicID {
		return nil, fmt.Errorf("%v: %w: the source's id is %v, was %v", p, cluster.ErrTopicReplaced, id, s.TopicID)
	}
	return fetcher.Unchanged(p, b, s.Epochs)
}
