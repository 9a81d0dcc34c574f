package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// ErrLocked: another store has the folder open, in this process or in another one. The
// error names the folder.
var ErrLocked = errors.New("folder of state files is in use")

// lockName is the file that the lock is held by.
const lockName = "lock"

// Options of a Store. nil stands for all defaults.
type Options struct {
	// Logger is told of writes that a crash has left unfinished.
	// Default: silent.
	Logger *slog.Logger
}

// Store keeps the state of mirrors in a folder. All methods are safe for concurrent use.
// After Close they answer an error that is os.ErrClosed.
type Store struct {
	dir    string // for errors
	disk   disk
	unlock func() error

	mu      sync.Mutex
	mirrors map[string]*mirror
	closed  bool
	writers sync.WaitGroup
}

var (
	_ coordinator.Store       = (*Store)(nil)
	_ coordinator.Definitions = (*Store)(nil)
	_ coordinator.Positions   = (*Store)(nil)
	_ coordinator.Notes       = (*Store)(nil)
)

// mirror is one mirror's part of the store.
type mirror struct {
	name     string
	stored   *state                                    // what is on disk and what readers see; the store's lock guards it
	watchers map[chan []coordinator.Intent]func() bool // with what ends its wait for the context

	queue   []*write
	writing bool // a goroutine takes what is queued
	// draft belongs to that goroutine.
	draft *draft
}

// Open takes a folder, which it makes where there is none, and reads what is stored
// there. Errors are ErrLocked, ErrCorrupt, ErrNewer (each file that is damaged or too new
// is named), and those of the file system.
func Open(dir string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of state files: %w", err)
	}
	if err := makeFolder(dir); err != nil {
		return nil, fmt.Errorf("make folder of state files: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s, err := open(dir, folder(dir), logger)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	s.unlock = unlock
	return s, nil
}

// open reads a folder that is locked.
func open(dir string, d disk, logger *slog.Logger) (*Store, error) {
	s := &Store{dir: dir, disk: d, unlock: func() error { return nil }, mirrors: map[string]*mirror{}}
	names, err := d.list()
	if err != nil {
		return nil, fmt.Errorf("folder of state files: %w", err)
	}
	var bad []error
	for _, name := range names {
		switch stored, leftover := ours(name); {
		case leftover:
			if err := d.remove(name); err != nil {
				return nil, fmt.Errorf("remove what a crash has left: %w", err)
			}
			logger.Info("removed a state file that was not finished", "file", s.path(name))
		case stored:
			if err := s.readFile(name); err != nil {
				bad = append(bad, err)
			}
		}
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return s, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) readFile(name string) error {
	data, err := s.disk.read(name)
	if err != nil {
		return fmt.Errorf("read state file: %w", err)
	}
	mirror, st, err := decode(data)
	if err == nil && fileName(mirror) != name {
		err = corrupt("is the file of mirror %q, which is named %s", mirror, fileName(mirror))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.path(name), err)
	}
	s.mirror(mirror).stored = st
	return nil
}

// mirror gives a mirror's part; the lock is held.
func (s *Store) mirror(name string) *mirror {
	m, ok := s.mirrors[name]
	if !ok {
		m = &mirror{name: name, stored: newState(), watchers: map[chan []coordinator.Intent]func() bool{}}
		s.mirrors[name] = m
	}
	return m
}

// usable: ctx has not ended and the store is open; the lock is held.
func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed {
		return fmt.Errorf("state files in %s: %w", s.dir, os.ErrClosed)
	}
	return nil
}

// Close waits for the writes that are under way, ends all watches and lets go of the
// folder. A second call does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	s.writers.Wait()
	if again {
		return nil
	}
	s.mu.Lock()
	for _, m := range s.mirrors {
		for ch := range m.watchers {
			m.unwatch(ch)
		}
	}
	s.mu.Unlock()
	return s.unlock()
}

// Load implements coordinator.Store. It reads no file.
func (s *Store) Load(ctx context.Context, name string) ([]coordinator.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	m := s.mirrors[name]
	if m == nil {
		return nil, nil
	}
	records := make([]coordinator.Record, 0, len(m.stored.records))
	for _, e := range m.stored.records {
		records = append(records, e.value)
	}
	return records, nil
}

// Definitions implements coordinator.Definitions.
func (s *Store) Definitions(ctx context.Context) ([]coordinator.Definition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var out []coordinator.Definition
	for _, m := range s.mirrors {
		if m.stored.definition == nil {
			continue
		}
		// Read anew, since its maps belong to the receiver.
		e, err := readEntry(definitionLine, m.stored.definition.line, validDefinition)
		if err != nil {
			return nil, err
		}
		out = append(out, e.value)
	}
	return out, nil
}

// Positions implements coordinator.Positions.
func (s *Store) Positions(ctx context.Context, source string, partitions []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	records := make(map[string][]coordinator.Record, len(s.mirrors))
	for name, m := range s.mirrors {
		for _, p := range partitions {
			if e := m.stored.records[p]; e != nil {
				records[name] = append(records[name], e.value)
			}
		}
	}
	return coordinator.AnswerPositions(records, source, partitions), nil
}
