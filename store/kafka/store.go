package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/wire"
)

var (
	_ coordinator.Store       = (*Store)(nil)
	_ coordinator.Definitions = (*Store)(nil)
	_ coordinator.Positions   = (*Store)(nil)
	_ coordinator.Notes       = (*Store)(nil)
)

// Store keeps the state of mirrors in a compacted topic. It is safe for concurrent
// use, and so are several of them, in one process or in many. It connects when it is
// first used and then reads the topic until Close. What writes, and Watch, creates the
// topic where it is missing; what reads takes a missing one for an empty one.
//
// Errors wrap those of package cluster: ErrUnreachable, ErrAuthorization, ErrTimeout
// and so on; ErrRefused for a topic whose cleanup.policy would lose state.
type Store struct {
	cfg    Config
	client *wire.Client
	name   string // of this store, in keys
	count  atomic.Int64

	opening chan struct{} // holds one value while the topic is opened
	life    context.Context
	end     context.CancelFunc
	calls   sync.WaitGroup // of methods; added to under mu, before closed

	mu     sync.Mutex
	tail   *tail // nil before the first use
	closed bool
}

// New makes a Store. It connects to nothing. The error names every bad field.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails
	life, end := context.WithCancel(context.Background())
	return &Store{
		cfg: cfg, life: life, end: end, name: hex.EncodeToString(name[:]), opening: make(chan struct{}, 1),
		client: wire.NewClient(cfg.Bootstrap, &wire.Config{
			Dial: cfg.Dial, TLS: cfg.TLS, SASL: cfg.SASL, ClientID: cfg.ClientID,
			DialTimeout: cfg.DialTimeout, RequestTimeout: cfg.RequestTimeout, Logger: cfg.Logger,
		}),
	}, nil
}

// errClosed is the answer of a Store that was closed.
var errClosed = fmt.Errorf("state store: %w", net.ErrClosed)

// Close ends watches, calls under way and connections, and waits for every goroutine.
// The Store answers with an error afterwards (net.ErrClosed). It returns nil.
func (s *Store) Close() error {
	s.mu.Lock()
	t := s.tail
	s.tail, s.closed = nil, true
	s.mu.Unlock()
	s.end()
	if t != nil {
		t.close(errClosed)
	}
	s.calls.Wait()
	s.client.Close() // last: a call under way would connect again
	return nil
}

// enter begins a call: ctx with the time it may take, ended by Close.
func (s *Store) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.calls.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		s.calls.Done()
	}, nil
}

// living gives the tail that reads now; nil when there is none.
func (s *Store) living() (*tail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.tail != nil && s.tail.ended() == nil {
		return s.tail, nil
	}
	return nil, nil
}

// open gives a tail that has read the topic. When there is no topic it is created, or
// nil is given.
func (s *Store) open(ctx context.Context, create bool) (*tail, error) {
	if t, err := s.living(); t != nil || err != nil {
		return t, err
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, at(s.cfg.Topic, fmt.Errorf("%w: %w", cluster.ErrTimeout, ctx.Err()))
	}
	if t, err := s.living(); t != nil || err != nil {
		return t, err
	}
	topic, err := s.find(ctx)
	if err == nil && topic == nil && create {
		if err = s.create(ctx); err == nil {
			topic, err = s.awaitLeaders(ctx)
		}
	}
	if err == nil && topic != nil {
		err = s.check(ctx)
	}
	if err != nil || topic == nil {
		return nil, at(s.cfg.Topic, err)
	}
	return s.follow(topic)
}

// follow begins to read.
func (s *Store) follow(topic *wire.TopicMetadata) (*tail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.tail != nil {
		s.tail.wg.Wait() // it has ended
	}
	s.tail = s.newTail(topic)
	return s.tail, nil
}

// read gives a tail that has read all there is; nil when there is no topic.
func (s *Store) read(ctx context.Context) (*tail, error) {
	t, err := s.open(ctx, false)
	if err != nil || t == nil {
		return nil, err
	}
	return t, t.sync(ctx)
}

// Load implements coordinator.Store.
func (s *Store) Load(ctx context.Context, mirror string) ([]coordinator.Record, error) {
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
	return m.standing(slices.Collect(maps.Keys(m.records)))
}

// standing are the records of partitions, as far as there are any. Needs the tail's
// lock.
func (m *mirrorView) standing(partitions []cluster.Partition) ([]coordinator.Record, error) {
	records := make([]coordinator.Record, 0, len(partitions))
	for _, p := range partitions {
		v := m.records[p]
		if v == nil {
			continue
		}
		if v.read(kindRecord); v.err != nil {
			return nil, v.err
		}
		if !v.deleted {
			rec := v.record
			rec.Sources, rec.Restore = slices.Clone(rec.Sources), slices.Clone(rec.Restore)
			records = append(records, rec)
		}
	}
	return records, nil
}

// Save implements coordinator.Store.
func (s *Store) Save(ctx context.Context, mirror string, records []coordinator.Record) []error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return alike(err, len(records))
	}
	defer leave()
	t, err := s.ready(ctx)
	if err != nil {
		return alike(err, len(records))
	}
	errs := make([]error, len(records))
	wants := make([]*want, 0, len(records))
	index := make([]int, 0, len(records))
	for i, rec := range records {
		var w *want
		if w, errs[i] = t.save(mirror, rec); w != nil {
			wants, index = append(wants, w), append(index, i)
		}
	}
	t.change(ctx, wants)
	for k, w := range wants {
		errs[index[k]] = w.err
	}
	return errs
}

// alike is the same error for n records.
func alike(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (t *tail) save(mirror string, rec coordinator.Record) (*want, error) {
	if rec.Partition.Topic == "" || rec.Partition.Partition < 0 {
		return nil, fmt.Errorf("%w: a record of no partition (%v)", cluster.ErrRefused, rec.Partition)
	}
	encoded, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	return t.want(recordSlot(mirror, rec.Partition), func(now *value) ([]byte, error) {
		var old coordinator.Record
		if v := standing(now); v != nil {
			old = v.record
		}
		if rec.StateEpoch != old.StateEpoch+1 || rec.OwnerEpoch < old.OwnerEpoch {
			return nil, coordinator.ErrConflict
		}
		return encoded, nil
	}), nil
}

func (t *tail) want(s slot, decide func(now *value) ([]byte, error)) *want {
	return &want{slot: s, home: s.home(int32(len(t.all))), decide: decide}
}

// ready gives a tail that has read what was there when it was opened: enough for
// writing, as a write is decided in the log.
func (s *Store) ready(ctx context.Context) (*tail, error) {
	t, err := s.open(ctx, true)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	loaded := t.loaded
	t.mu.Unlock()
	if loaded {
		return t, nil
	}
	if err := t.sync(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded = true
	return t, nil
}

// remove is a want that leaves a grave.
func (t *tail) remove(s slot) *want {
	return t.want(s, func(now *value) ([]byte, error) {
		if standing(now) == nil {
			return nil, errNothing
		}
		return grave, nil
	})
}

// Delete implements coordinator.Store. A deleted record leaves a grave of some hundred
// bytes in the topic, which does not go away (decision 0007).
func (s *Store) Delete(ctx context.Context, mirror string, partitions []cluster.Partition) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	t, err := s.read(ctx)
	if err != nil || t == nil {
		return err
	}
	topics := map[string]bool{}
	wants := make([]*want, 0, len(partitions))
	for _, p := range partitions {
		topics[p.Topic] = true
		wants = append(wants, t.remove(recordSlot(mirror, p)))
	}
	t.change(ctx, wants)
	if err := failed(wants); err != nil {
		return err
	}
	if err := t.sync(ctx); err != nil {
		return err
	}
	return t.dropIntents(ctx, mirror, t.without(mirror, topics))
}

// without are those of some topics that have an intent and no record.
func (t *tail) without(mirror string, topics map[string]bool) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.view.mirror(mirror)
	for p, v := range m.records {
		if !topics[p.Topic] {
			continue
		}
		if v.read(kindRecord); !v.deleted {
			delete(topics, p.Topic)
		}
	}
	maps.DeleteFunc(topics, func(name string, _ bool) bool { _, ok := m.intents[name]; return !ok })
	return slices.Sorted(maps.Keys(topics))
}

// Positions implements coordinator.Positions. It creates nothing.
func (s *Store) Positions(ctx context.Context, source string, partitions []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	records := map[string][]coordinator.Record{}
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		for name, m := range t.view.mirrors {
			if records[name], err = m.standing(partitions); err != nil {
				return nil, errors.Join(errPositions, at(t.topic, err))
			}
		}
	}
	return coordinator.AnswerPositions(records, source, partitions), nil
}

var errPositions = errors.New("positions of mirrors are not known")

var _ coordinator.InTopic = (*Store)(nil)

// StateTopic is the topic that holds the state.
func (s *Store) StateTopic() string { return s.cfg.Topic }
