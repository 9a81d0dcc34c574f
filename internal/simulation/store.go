package simulation

import (
	"context"
	"errors"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

var errStore = errors.New("the store does not answer")

// storeCall is the Step.Call of requests to a store.
const storeCall = "store"

// store is the store of mirrors into a cluster as one process sees it: it dies,
// stands still and loses requests with the process, and every write that gets
// through is shown to the oracle.
type store struct {
	*coordinator.Memory
	p  *process
	at string // the cluster
}

var (
	_ coordinator.Store     = (*store)(nil)
	_ coordinator.Positions = (*store)(nil)
)

// pass waits until a request may be made, and says whether its answer is lost.
func (s *store) pass(ctx context.Context) (after func() error, err error) {
	verdict := s.p.judge(storeCall)
	if verdict.hold != nil {
		select {
		case <-verdict.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case s.p.isDead(), verdict.lost, s.p.w.storeless(s.at):
		return nil, errStore
	case verdict.lostReply:
		return func() error { return errStore }, nil
	case verdict.last:
		return func() error {
			<-ctx.Done() // the process dies before it learns the outcome
			return ctx.Err()
		}, nil
	}
	return func() error { return nil }, nil
}

func (s *store) Load(ctx context.Context, mirror string) ([]coordinator.Record, error) {
	after, err := s.pass(ctx)
	if err != nil {
		return nil, err
	}
	recs, err := s.Memory.Load(ctx, mirror)
	return recs, errors.Join(err, after())
}

func (s *store) Save(ctx context.Context, mirror string, records []coordinator.Record) []error {
	errs := make([]error, len(records))
	after, err := s.pass(ctx)
	if err == nil {
		errs = s.save(ctx, mirror, records)
		err = after()
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// save writes and tells the oracle, as one.
func (s *store) save(ctx context.Context, mirror string, records []coordinator.Record) []error {
	w := s.p.w
	w.saving.Lock()
	defer w.saving.Unlock()
	before := w.records(s.at, mirror)
	errs := s.Memory.Save(ctx, mirror, records)
	for i, rec := range records {
		if errs[i] == nil {
			w.oracle.saved(s.p, before[rec.Partition], rec)
		}
	}
	return errs
}

func (s *store) Delete(ctx context.Context, mirror string, ps []cluster.Partition) error {
	after, err := s.pass(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.Memory.Delete(ctx, mirror, ps), after())
}

func (s *store) SaveIntents(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
	after, err := s.pass(ctx)
	if err != nil {
		return nil, err
	}
	revisions, err := s.Memory.SaveIntents(ctx, mirror, intents)
	return revisions, errors.Join(err, after())
}

func (s *store) Watch(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
	after, err := s.pass(ctx)
	if err != nil {
		return nil, err
	}
	if err := after(); err != nil {
		return nil, err
	}
	return s.Memory.Watch(ctx, mirror)
}

func (s *store) Positions(ctx context.Context, source string, ps []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	after, err := s.pass(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := s.Memory.Positions(ctx, source, ps)
	return answers, errors.Join(err, after())
}
