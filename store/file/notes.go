package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/clustermirror/mirror/coordinator"
)

// note is a small value of somebody else, as it stands in a file.
type note struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

func validNote(n note) error {
	if n.Key == "" || n.Value == nil {
		return errors.New("note without a key or a value")
	}
	return nil
}

// Notes implements coordinator.Notes.
func (s *Store) Notes(ctx context.Context, name string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	m := s.mirrors[name]
	if m == nil {
		return nil, nil
	}
	all := make(map[string][]byte, len(m.stored.notes))
	for key, e := range m.stored.notes {
		all[key] = slices.Clone(e.value.Value)
	}
	return all, nil
}

// SwapNotes implements coordinator.Notes.
func (s *Store) SwapNotes(ctx context.Context, name string, was, now map[string][]byte) ([]string, error) {
	was, now, err := coordinator.CompactNotes(was, now)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]*entry[note], len(now))
	for key, v := range now {
		if !utf8.ValidString(key) {
			return nil, fmt.Errorf("note %q cannot be stored: %w", key, errNotText)
		}
		if v == nil {
			continue
		}
		if entries[key], err = newEntry(noteLine, note{key, v}, validNote); err != nil {
			return nil, fmt.Errorf("note %q cannot be stored: %w", key, err)
		}
	}
	var refused []string // not read unless the write is done
	err = s.commit(ctx, name, func(d *draft) {
		for key := range now {
			var stands []byte
			if e := d.notes[key]; e != nil {
				stands = e.value.Value
			}
			switch {
			case !bytes.Equal(stands, was[key]):
				refused = append(refused, key)
			case stands != nil || entries[key] != nil:
				d.setNote(key, entries[key])
			}
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(refused)
	return refused, nil
}
