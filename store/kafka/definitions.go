package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/coordinator"
)

// Definitions implements coordinator.Definitions.
func (s *Store) Definitions(ctx context.Context) ([]coordinator.Definition, error) {
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
	var all []coordinator.Definition
	for name := range t.view.mirrors {
		v := t.view.get(definitionSlot(name))
		if v == nil {
			continue
		}
		if v.err != nil {
			return nil, at(t.topic, v.err)
		}
		if !v.deleted {
			all = append(all, clone(v.definition))
		}
	}
	return all, nil
}

// clone shares nothing with d.
func clone(d coordinator.Definition) coordinator.Definition {
	d.Source, d.Destination, d.Config = maps.Clone(d.Source), maps.Clone(d.Destination), maps.Clone(d.Config)
	d.Include, d.Exclude = slices.Clone(d.Include), slices.Clone(d.Exclude)
	return d
}

// Define implements coordinator.Definitions.
func (s *Store) Define(ctx context.Context, d coordinator.Definition) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	encoded, err := encodeDefinition(d)
	if err != nil {
		return err
	}
	t, err := s.ready(ctx)
	if err != nil {
		return err
	}
	w := t.want(definitionSlot(d.Name), func(now *value) ([]byte, error) {
		var revision int64
		if v := standing(now); v != nil {
			revision = v.definition.Revision
		}
		if d.Revision != revision+1 {
			return nil, coordinator.ErrConflict
		}
		return encoded, nil
	})
	t.change(ctx, []*want{w})
	return w.err
}

// Undefine implements coordinator.Definitions. The definition goes last, so that what
// was broken off can be done again.
func (s *Store) Undefine(ctx context.Context, name string) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	t, err := s.read(ctx)
	if err != nil || t == nil {
		return err
	}
	t.mu.Lock()
	var wants []*want
	var topics []string
	if m := t.view.mirrors[name]; m != nil {
		for p := range m.records {
			wants = append(wants, t.remove(recordSlot(name, p)))
		}
		topics = slices.Sorted(maps.Keys(m.intents))
	}
	t.mu.Unlock()
	t.change(ctx, wants)
	if err := failed(wants); err != nil {
		return err
	}
	if err := t.dropIntents(ctx, name, topics); err != nil {
		return err
	}
	w := t.remove(definitionSlot(name))
	t.change(ctx, []*want{w})
	return w.err
}
