package file

import (
	"context"
	"slices"

	"github.com/clustermirror/mirror/coordinator"
)

// Watch implements coordinator.Store. The channel is closed when ctx or the store ends.
func (s *Store) Watch(ctx context.Context, name string) (<-chan []coordinator.Intent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	m := s.mirror(name)
	var first []coordinator.Intent
	for _, e := range m.stored.intents {
		first = append(first, e.value)
	}
	// The channel holds one piece, which grows until it is taken. Sends are made under
	// the lock only, so they never block.
	ch := make(chan []coordinator.Intent, 1)
	ch <- first
	m.watchers[ch] = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.unwatch(ch)
	})
	return ch, nil
}

// unwatch ends a watch, once; the lock is held.
func (m *mirror) unwatch(ch chan []coordinator.Intent) {
	if stop, ok := m.watchers[ch]; ok {
		stop()
		delete(m.watchers, ch)
		close(ch)
	}
}

// tell gives watchers what was stored; the lock is held.
func (m *mirror) tell(said []coordinator.Intent) {
	if len(said) == 0 {
		return
	}
	for ch := range m.watchers {
		var piece []coordinator.Intent
		select {
		case piece = <-ch:
		default:
		}
		ch <- merge(piece, said)
	}
}

// merge adds later intents to a piece that nobody has taken yet. Of each topic one is
// left, so that a reader that never comes does not cost more and more.
func merge(piece, said []coordinator.Intent) []coordinator.Intent {
	all := slices.Concat(piece, said)
	newest := make(map[string]int64, len(all))
	for _, in := range all {
		newest[in.Topic] = max(newest[in.Topic], in.Revision)
	}
	return slices.DeleteFunc(all, func(in coordinator.Intent) bool { return in.Revision < newest[in.Topic] })
}
