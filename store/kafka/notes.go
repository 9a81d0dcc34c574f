package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// Notes implements coordinator.Notes.
func (s *Store) Notes(ctx context.Context, mirror string) (map[string][]byte, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := s.read(ctx)
	if err != nil || t == nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.view.mirrors[mirror]
	if m == nil {
		return nil, nil
	}
	all := make(map[string][]byte, len(m.notes))
	for key := range m.notes {
		v := t.view.get(noteSlot(mirror, key))
		if v.err != nil {
			return nil, at(t.topic, v.err)
		}
		if !v.deleted {
			all[key] = slices.Clone(v.note)
		}
	}
	return all, nil
}

// SwapNotes implements coordinator.Notes. Like a record, a note that was deleted leaves a
// grave.
func (s *Store) SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) ([]string, error) {
	was, now, err := coordinator.CompactNotes(was, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrRefused, err)
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	keys := slices.Sorted(maps.Keys(now))
	wants := make([]*want, len(keys))
	for i, key := range keys {
		wants[i] = t.swap(noteSlot(mirror, key), was[key], now[key])
	}
	t.change(ctx, wants)
	var refused []string
	var others []*want
	for i, w := range wants {
		if errors.Is(w.err, coordinator.ErrConflict) {
			refused = append(refused, keys[i])
		} else {
			others = append(others, w)
		}
	}
	return refused, failed(others)
}

// swap is a want that puts a note in the place of another.
func (t *tail) swap(s slot, was, to []byte) *want {
	return t.want(s, func(now *value) ([]byte, error) {
		var stands []byte
		if v := standing(now); v != nil {
			stands = v.note
		}
		switch {
		case string(stands) != string(was):
			return nil, coordinator.ErrConflict
		case string(stands) == string(to):
			return nil, errNothing
		case to == nil:
			return grave, nil
		}
		return encodeNote(to), nil
	})
}
