package coordinator

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// Memory is a Store in a map: it forgets everything with the process. It is
// safe for concurrent use, by several coordinators too.
type Memory struct {
	mu       sync.Mutex
	fault    func(op string, rec Record) error
	mirrors  map[string]*memoryMirror
	revision int64
}

type memoryMirror struct {
	records map[cluster.Partition]Record
	intents map[string]Intent
	// watchers hold at most one piece each, which grows until it is taken; sends
	// are made under the lock only, so they never block.
	watchers map[chan []Intent]struct{}
}

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{mirrors: map[string]*memoryMirror{}} }

// SetFault makes the store fail for tests: fault is asked before each operation
// ("load", "save" for each record, "delete", "intent", "watch"), under the
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

// SaveIntent implements Store.
func (m *Memory) SaveIntent(ctx context.Context, mirror string, intent Intent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(ctx, "intent", Record{}); err != nil {
		return err
	}
	m.revision++
	intent.Revision = m.revision
	mm := m.open(mirror)
	mm.intents[intent.Topic] = intent
	for ch := range mm.watchers {
		var piece []Intent
		select {
		case piece = <-ch:
		default:
		}
		ch <- append(slices.Clip(piece), intent)
	}
	return nil
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
