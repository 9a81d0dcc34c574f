package coordinator

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// Memory is a Store in a map, with definitions and positions: it forgets everything
// with the process. It is safe for concurrent use, by several coordinators too.
type Memory struct {
	mu       sync.Mutex
	fault    func(op string, rec Record) error
	mirrors  map[string]*memoryMirror
	defined  map[string]Definition
	revision int64
}

type memoryMirror struct {
	records map[cluster.Partition]Record
	intents map[string]Intent
	notes   map[string][]byte
	// watchers hold at most one piece each, which grows until it is taken; sends
	// are made under the lock only, so they never block.
	watchers map[chan []Intent]struct{}
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{mirrors: map[string]*memoryMirror{}, defined: map[string]Definition{}}
}

// SetFault makes the store fail for tests: fault is asked before each operation
// ("load", "save" for each record, "delete", "intent", "watch", "define", "note"), under the
// store's lock, and its error is answered instead of doing it. nil ends that.
func (m *Memory) SetFault(fault func(op string, rec Record) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = fault
}

func (m *Memory) check(ctx context.Context, op string, rec Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.fault != nil {
		return m.fault(op, rec)
	}
	return nil
}

// open gives the mirror's part; the lock is held.
func (m *Memory) open(mirror string) *memoryMirror {
	mm, ok := m.mirrors[mirror]
	if !ok {
		mm = &memoryMirror{
			records:  map[cluster.Partition]Record{},
			intents:  map[string]Intent{},
			notes:    map[string][]byte{},
			watchers: map[chan []Intent]struct{}{},
		}
		m.mirrors[mirror] = mm
	}
	return mm
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, mirror string) ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "load", Record{}); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(m.open(mirror).records)), nil
}

// Save implements Store.
func (m *Memory) Save(ctx context.Context, mirror string, records []Record) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(records))
	stored := m.open(mirror).records
	for i, rec := range records {
		if errs[i] = m.check(ctx, "save", rec); errs[i] != nil {
			continue
		}
		if old := stored[rec.Partition]; rec.StateEpoch != old.StateEpoch+1 || rec.OwnerEpoch < old.OwnerEpoch {
			errs[i] = ErrConflict
			continue
		}
		stored[rec.Partition] = rec
	}
	return errs
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, mirror string, partitions []cluster.Partition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "delete", Record{}); err != nil {
		return err
	}
	mm := m.open(mirror)
	gone := map[string]bool{}
	for _, p := range partitions {
		delete(mm.records, p)
		gone[p.Topic] = true
	}
	for p := range mm.records {
		delete(gone, p.Topic)
	}
	for topic := range gone {
		delete(mm.intents, topic)
	}
	return nil
}

// SaveIntents implements Store.
func (m *Memory) SaveIntents(ctx context.Context, mirror string, intents []Intent) ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "intent", Record{}); err != nil {
		return nil, err
	}
	mm := m.open(mirror)
	saved, revisions := slices.Clone(intents), make([]int64, len(intents))
	for i := range saved {
		m.revision++
		saved[i].Revision, revisions[i] = m.revision, m.revision
		mm.intents[saved[i].Topic] = saved[i]
	}
	for ch := range mm.watchers {
		var piece []Intent
		select {
		case piece = <-ch:
		default:
		}
		ch <- append(slices.Clip(piece), saved...)
	}
	return revisions, nil
}

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, mirror string) (<-chan []Intent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "watch", Record{}); err != nil {
		return nil, err
	}
	mm := m.open(mirror)
	ch := make(chan []Intent, 1)
	ch <- slices.Collect(maps.Values(mm.intents))
	mm.watchers[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(mm.watchers, ch)
		close(ch)
	})
	return ch, nil
}

// Definitions implements Definitions.
func (m *Memory) Definitions(ctx context.Context) ([]Definition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "load", Record{}); err != nil {
		return nil, err
	}
	out := make([]Definition, 0, len(m.defined))
	for _, d := range m.defined {
		out = append(out, d.clone())
	}
	return out, nil
}

// Define implements Definitions.
func (m *Memory) Define(ctx context.Context, d Definition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "define", Record{}); err != nil {
		return err
	}
	if d.Revision != m.defined[d.Name].Revision+1 {
		return ErrConflict
	}
	m.defined[d.Name] = d.clone()
	return nil
}

// Undefine implements Definitions. Watches go on: the mirror may be created anew.
func (m *Memory) Undefine(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "define", Record{}); err != nil {
		return err
	}
	delete(m.defined, name)
	if mm := m.mirrors[name]; mm != nil {
		clear(mm.records)
		clear(mm.intents)
	}
	return nil
}

// Positions implements Positions.
func (m *Memory) Positions(ctx context.Context, source string, partitions []cluster.Partition) ([]PositionAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "load", Record{}); err != nil {
		return nil, err
	}
	records := make(map[string][]Record, len(m.mirrors))
	for name, mm := range m.mirrors {
		for _, p := range partitions {
			if rec, ok := mm.records[p]; ok {
				records[name] = append(records[name], rec)
			}
		}
	}
	return AnswerPositions(records, source, partitions), nil
}

// Notes implements Notes.
func (m *Memory) Notes(ctx context.Context, mirror string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "load", Record{}); err != nil {
		return nil, err
	}
	all := make(map[string][]byte)
	for key, v := range m.open(mirror).notes {
		all[key] = slices.Clone(v)
	}
	return all, nil
}

// SwapNotes implements Notes.
func (m *Memory) SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) (refused []string, err error) {
	was, now, err = CompactNotes(was, now)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "note", Record{}); err != nil {
		return nil, err
	}
	notes := m.open(mirror).notes
	for key, v := range now {
		switch stands := notes[key]; {
		case !bytes.Equal(stands, was[key]):
			refused = append(refused, key)
		case v == nil:
			delete(notes, key)
		default:
			notes[key] = v
		}
	}
	slices.Sort(refused)
	return refused, nil
}
