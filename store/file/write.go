package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// write is a call that waits for its change to be on disk.
type write struct {
	ctx context.Context
	// apply makes the change on the draft. What it finds (conflicts) counts only when
	// err is nil: it may rest on a change that could not be stored.
	apply func(d *draft)
	err   error // once done is closed
	done  chan struct{}
}

// commit has a change made and stored. Changes are made in the order of the calls; those
// that come while a file is being written share the next one.
//
// There is no goroutine while nothing is to be written. The one that writes is not bound
// to any caller's context: a sync cannot be called back, and others may share it.
func (s *Store) commit(ctx context.Context, name string, apply func(d *draft)) error {
	s.mu.Lock()
	if err := s.usable(ctx); err != nil {
		s.mu.Unlock()
		return err
	}
	m := s.mirror(name)
	w := &write{ctx: ctx, apply: apply, done: make(chan struct{})}
	m.queue = append(m.queue, w)
	if !m.writing {
		m.writing = true
		s.writers.Go(func() { s.drain(m) })
	}
	s.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain writes until nothing is queued.
func (s *Store) drain(m *mirror) {
	for {
		s.mu.Lock()
		group := m.queue
		m.queue = nil
		if len(group) == 0 {
			m.writing = false
			s.mu.Unlock()
			return
		}
		if m.draft == nil {
			m.draft = newDraft(m.stored)
		}
		s.mu.Unlock()
		s.writeGroup(m, group)
	}
}

func (s *Store) writeGroup(m *mirror, group []*write) {
	d := m.draft
	for _, w := range group {
		if w.err = w.ctx.Err(); w.err == nil {
			w.apply(d)
		}
	}
	var err error
	if d.changed() {
		err = s.writeFile(m.name, d.state)
	}
	s.mu.Lock()
	if err == nil {
		m.tell(d.said)
	}
	d.settle(m.stored, err == nil)
	s.mu.Unlock()
	for _, w := range group {
		if w.err == nil {
			w.err = err
		}
		close(w.done)
	}
}

// writeFile puts all of a mirror's state in the place of what is stored. After an error
// the old state is in the file, or, where only the last sync has failed, the new one.
func (s *Store) writeFile(mirror string, st *state) error {
	name := fileName(mirror)
	if len(st.records)+len(st.intents)+len(st.notes) == 0 && st.definition == nil && st.revision == 0 {
		if err := s.disk.remove(name); err != nil {
			return fmt.Errorf("remove state file: %w", err)
		}
	} else if err := s.replace(name, mirror, st); err != nil {
		return fmt.Errorf("write state file %s: %w", s.path(name), err)
	}
	if err := s.disk.sync(); err != nil {
		return fmt.Errorf("sync folder of state files: %w", err)
	}
	return nil
}

func (s *Store) replace(name, mirror string, st *state) (err error) {
	temp := name + unborn
	f, err := s.disk.create(temp)
	if err != nil {
		return err
	}
	err = encode(f, mirror, st)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = s.disk.rename(temp, name)
	}
	if err != nil {
		s.disk.remove(temp) // a full disk has use for the room; Open removes it otherwise
	}
	return err
}

// errNotText: a name would be another one once it is read again.
var errNotText = errors.New("the name is not UTF-8")

// Save implements coordinator.Store. A record that could not be read again (a state that
// is not known, a history that goes back) is refused by itself.
func (s *Store) Save(ctx context.Context, name string, records []coordinator.Record) []error {
	errs := make([]error, len(records))
	entries := make([]*entry[coordinator.Record], len(records))
	for i, r := range records {
		if r.StateEpoch < 1 {
			errs[i] = coordinator.ErrConflict
			continue
		}
		e, err := newEntry(recordLine, r, validRecord)
		if err == nil && e.value.Partition != r.Partition {
			err = errNotText
		}
		if err != nil {
			errs[i] = fmt.Errorf("record of %v cannot be stored: %w", r.Partition, err)
		}
		entries[i] = e
	}
	conflicts := make([]error, len(records)) // not read unless the write is done
	err := s.commit(ctx, name, func(d *draft) {
		for i, e := range entries {
			if errs[i] != nil {
				continue
			}
			var owner, epoch int32
			if old := d.records[e.value.Partition]; old != nil {
				owner, epoch = old.value.OwnerEpoch, old.value.StateEpoch
			}
			if e.value.StateEpoch != epoch+1 || e.value.OwnerEpoch < owner {
				conflicts[i] = coordinator.ErrConflict
				continue
			}
			d.setRecord(e.value.Partition, e)
		}
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(records))
	}
	for i, c := range conflicts {
		if errs[i] == nil {
			errs[i] = c
		}
	}
	return errs
}

// Delete implements coordinator.Store.
func (s *Store) Delete(ctx context.Context, name string, partitions []cluster.Partition) error {
	return s.commit(ctx, name, func(d *draft) {
		gone := map[string]bool{}
		for _, p := range partitions {
			if d.records[p] != nil {
				d.setRecord(p, nil)
			}
			if d.intents[p.Topic] != nil {
				gone[p.Topic] = true
			}
		}
		if len(gone) > 0 {
			for p := range d.records {
				delete(gone, p.Topic)
			}
		}
		for topic := range gone {
			d.setIntent(topic, nil)
		}
	})
}

// SaveIntents implements coordinator.Store.
func (s *Store) SaveIntents(ctx context.Context, name string, intents []coordinator.Intent) ([]int64, error) {
	for _, in := range intents {
		err := validIntent(in)
		if err == nil && !utf8.ValidString(in.Topic) {
			err = errNotText
		}
		if err != nil {
			return nil, fmt.Errorf("intent of topic %q cannot be stored: %w", in.Topic, err)
		}
	}
	intents = slices.Clone(intents) // ctx may end before they are looked at
	revisions := make([]int64, len(intents))
	var failed error
	err := s.commit(ctx, name, func(d *draft) {
		for i, in := range intents {
			in.Revision = d.revision + 1
			revisions[i] = in.Revision
			e, err := newEntry(intentLine, in, validIntent)
			if err != nil {
				failed = err
				return
			}
			d.revision, d.touched.other = in.Revision, true
			d.setIntent(in.Topic, e)
			d.said = append(d.said, in)
		}
	})
	if err := cmp.Or(err, failed); err != nil {
		return nil, err
	}
	return revisions, nil
}

// Define implements coordinator.Definitions.
func (s *Store) Define(ctx context.Context, d coordinator.Definition) error {
	if d.Revision < 1 {
		return coordinator.ErrConflict
	}
	e, err := newEntry(definitionLine, d, validDefinition)
	if err == nil && e.value.Name != d.Name {
		err = errNotText
	}
	if err != nil {
		return fmt.Errorf("definition %q cannot be stored: %w", d.Name, err)
	}
	var conflict error
	err = s.commit(ctx, d.Name, func(dr *draft) {
		var stored int64
		if dr.definition != nil {
			stored = dr.definition.value.Revision
		}
		if e.value.Revision != stored+1 {
			conflict = coordinator.ErrConflict
			return
		}
		dr.setDefinition(e)
	})
	if err != nil {
		return err
	}
	return conflict
}

// Undefine implements coordinator.Definitions. Watches go on: the mirror may be created
// anew, and its revisions go on as well.
func (s *Store) Undefine(ctx context.Context, name string) error {
	return s.commit(ctx, name, func(d *draft) {
		for p := range d.records {
			d.setRecord(p, nil)
		}
		for topic := range d.intents {
			d.setIntent(topic, nil)
		}
		if d.definition != nil {
			d.setDefinition(nil)
		}
	})
}
