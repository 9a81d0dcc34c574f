package storetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// broken makes a store wrong in one way, and names cases that have to find it.
type broken struct {
	name  string
	store func(Store) Store
	fails []string
}

// wrong is a store of which some methods are replaced.
type wrong struct {
	Store
	save    func(ctx context.Context, mirror string, records []coordinator.Record) []error
	load    func(ctx context.Context, mirror string) ([]coordinator.Record, error)
	remove  func(ctx context.Context, mirror string, partitions []cluster.Partition) error
	intents func(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error)
	watch   func(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error)
	define  func(ctx context.Context, d coordinator.Definition) error
}

func (w *wrong) Save(ctx context.Context, mirror string, records []coordinator.Record) []error {
	if w.save != nil {
		return w.save(ctx, mirror, records)
	}
	return w.Store.Save(ctx, mirror, records)
}

func (w *wrong) Load(ctx context.Context, mirror string) ([]coordinator.Record, error) {
	if w.load != nil {
		return w.load(ctx, mirror)
	}
	return w.Store.Load(ctx, mirror)
}

func (w *wrong) Delete(ctx context.Context, mirror string, partitions []cluster.Partition) error {
	if w.remove != nil {
		return w.remove(ctx, mirror, partitions)
	}
	return w.Store.Delete(ctx, mirror, partitions)
}

func (w *wrong) SaveIntents(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
	if w.intents != nil {
		return w.intents(ctx, mirror, intents)
	}
	return w.Store.SaveIntents(ctx, mirror, intents)
}

func (w *wrong) Watch(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
	if w.watch != nil {
		return w.watch(ctx, mirror)
	}
	return w.Store.Watch(ctx, mirror)
}

func (w *wrong) Define(ctx context.Context, d coordinator.Definition) error {
	if w.define != nil {
		return w.define(ctx, d)
	}
	return w.Store.Define(ctx, d)
}

func allBroken() []broken {
	return []broken{
		{"owner epochs are not looked at", ignoresOwner, []string{"compare and save", "reopen/compare and save goes on"}},
		{"a conflict fails the whole batch", wholeBatch, []string{"a conflict harms no other record"}},
		{"answers in another order", otherOrder, []string{"a conflict harms no other record"}},
		{"the last writer wins", lastWins, []string{"compare and save", "one of many wins",
			"second/one of many wins", "reopen/compare and save goes on"}},
		{"some writes are lost", losesSome, []string{"concurrent additions add up", "cancelled meanwhile"}},
		{"a field is not stored", losesField, []string{"values survive", "reopen/what was stored is there"}},
		{"the first piece is empty", noFirstPiece, []string{"watch has the stored ones first", "intents go with the last record", "reopen/many times"}},
		{"a watch outlives its context", endlessWatch, []string{"watch ends with its context"}},
		{"a writer waits for readers", waitsForReaders, []string{"a slow reader blocks no writer"}},
		{"revisions begin anew with each handle", revisionRestarts, []string{"reopen/revisions rise"}},
		{"revisions are the writer's", revisionGiven, []string{"revisions"}},
		{"revisions are not told", untold, []string{"revisions"}},
		{"mirrors are told apart by a prefix", prefixes, []string{"names are apart"}},
		{"mirrors are told apart without case", noCase, []string{"names are apart"}},
		{"intents stay when records go", keepsIntents, []string{"intents go with the last record"}},
		{"revisions of definitions are not looked at", blindDefine, []string{"definitions"}},
		{"contexts are not looked at", noContext, []string{"cancelled"}},
		{"a handle sees its own intents only", ownIntents, []string{"second/watch", "second/concurrent intents all arrive"}},
		{"deleted records come back", noDelete, []string{"delete", "reopen/what was deleted stays away"}},
	}
}

func ignoresOwner(s Store) Store {
	type key struct {
		mirror string
		p      cluster.Partition
	}
	var mu sync.Mutex
	owners := map[key]int32{}
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		mu.Lock()
		defer mu.Unlock()
		records = slices.Clone(records)
		for i, r := range records {
			owners[key{mirror, r.Partition}], records[i].OwnerEpoch = r.OwnerEpoch, math.MaxInt32
		}
		return s.Save(ctx, mirror, records)
	}
	w.load = func(ctx context.Context, mirror string) ([]coordinator.Record, error) {
		mu.Lock()
		defer mu.Unlock()
		records, err := s.Load(ctx, mirror)
		for i, r := range records {
			records[i].OwnerEpoch = owners[key{mirror, r.Partition}]
		}
		return records, err
	}
	return w
}

func wholeBatch(s Store) Store {
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		stored, _ := s.Load(ctx, mirror)
		for _, r := range records {
			i := slices.IndexFunc(stored, func(o coordinator.Record) bool { return o.Partition == r.Partition })
			if i >= 0 && r.StateEpoch != stored[i].StateEpoch+1 || i < 0 && r.StateEpoch != 1 {
				return slices.Repeat([]error{coordinator.ErrConflict}, len(records))
			}
		}
		return s.Save(ctx, mirror, records)
	}
	return w
}

func otherOrder(s Store) Store {
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		errs := s.Save(ctx, mirror, records)
		slices.Reverse(errs)
		return errs
	}
	return w
}

func lastWins(s Store) Store {
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		errs := s.Save(ctx, mirror, records)
		for i, r := range records {
			if errors.Is(errs[i], coordinator.ErrConflict) {
				s.Delete(ctx, mirror, []cluster.Partition{r.Partition})
				r.StateEpoch = 1
				errs[i] = s.Save(ctx, mirror, []coordinator.Record{r})[0]
			}
		}
		return errs
	}
	return w
}

func losesSome(s Store) Store {
	var calls atomic.Int32
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		if calls.Add(1)%5 == 0 {
			return make([]error, len(records))
		}
		return s.Save(ctx, mirror, records)
	}
	return w
}

func losesField(s Store) Store {
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		records = slices.Clone(records)
		for i := range records {
			records[i].RebuildOf = cluster.TopicID{}
		}
		return s.Save(ctx, mirror, records)
	}
	return w
}

func noFirstPiece(s Store) Store {
	w := &wrong{Store: s}
	w.watch = func(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
		ch, err := s.Watch(ctx, mirror)
		if err != nil {
			return nil, err
		}
		<-ch
		out := make(chan []coordinator.Intent, 1)
		out <- nil
		go pass(ctx, ch, out, true)
		return out, nil
	}
	return w
}

// pass hands pieces on until ctx ends.
func pass(ctx context.Context, ch <-chan []coordinator.Intent, out chan<- []coordinator.Intent, closing bool) {
	if closing {
		defer close(out)
	}
	for piece := range ch {
		select {
		case out <- piece:
		case <-ctx.Done():
		}
	}
}

func endlessWatch(s Store) Store {
	w := &wrong{Store: s}
	w.watch = func(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
		ch, err := s.Watch(ctx, mirror)
		if err != nil {
			return nil, err
		}
		out := make(chan []coordinator.Intent)
		go pass(ctx, ch, out, false)
		return out, nil
	}
	return w
}

func waitsForReaders(s Store) Store {
	var mu sync.Mutex
	var readers []chan<- []coordinator.Intent
	w := &wrong{Store: s}
	w.watch = func(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
		ch, err := s.Watch(ctx, mirror)
		if err != nil {
			return nil, err
		}
		out := make(chan []coordinator.Intent, 1)
		out <- <-ch
		mu.Lock()
		defer mu.Unlock()
		readers = append(readers, out)
		return out, nil
	}
	w.intents = func(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, out := range readers {
			select {
			case out <- intents:
			case <-ctx.Done():
			}
		}
		return s.SaveIntents(ctx, mirror, intents)
	}
	return w
}

// renumbered gives intents other revisions than the store did.
func renumbered(s Store, number func(in coordinator.Intent) int64) *wrong {
	w := &wrong{Store: s}
	w.watch = func(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
		ch, err := s.Watch(ctx, mirror)
		if err != nil {
			return nil, err
		}
		out := make(chan []coordinator.Intent, 1)
		go func() {
			defer close(out)
			for piece := range ch {
				for i := range piece {
					piece[i].Revision = number(piece[i])
				}
				select {
				case out <- piece:
				case <-ctx.Done():
				}
			}
		}()
		return out, nil
	}
	return w
}

func revisionRestarts(s Store) Store {
	var mu sync.Mutex
	var next int64
	given := map[int64]int64{}
	return renumbered(s, func(in coordinator.Intent) int64 {
		mu.Lock()
		defer mu.Unlock()
		if given[in.Revision] == 0 {
			next++
			given[in.Revision] = next
		}
		return given[in.Revision]
	})
}

func revisionGiven(s Store) Store {
	var mu sync.Mutex
	given := map[string]int64{}
	w := renumbered(s, func(in coordinator.Intent) int64 {
		mu.Lock()
		defer mu.Unlock()
		return given[in.Topic]
	})
	w.intents = func(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
		mu.Lock()
		for _, in := range intents {
			given[in.Topic] = in.Revision
		}
		mu.Unlock()
		return s.SaveIntents(ctx, mirror, intents)
	}
	return w
}

// renamed keeps mirrors under other names.
func renamed(s Store, name func(string) string) Store {
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		return s.Save(ctx, name(mirror), records)
	}
	w.load = func(ctx context.Context, mirror string) ([]coordinator.Record, error) {
		return s.Load(ctx, name(mirror))
	}
	return w
}

func prefixes(s Store) Store {
	return renamed(s, func(name string) string { base, _, _ := strings.Cut(name, "."); return base })
}

func noCase(s Store) Store { return renamed(s, strings.ToLower) }

func keepsIntents(s Store) Store {
	w := &wrong{Store: s}
	w.remove = func(ctx context.Context, mirror string, partitions []cluster.Partition) error {
		ch, err := s.Watch(ctx, mirror)
		if err != nil {
			return err
		}
		stored := <-ch
		err = s.Delete(ctx, mirror, partitions)
		_, again := s.SaveIntents(ctx, mirror, stored)
		return errors.Join(err, again)
	}
	return w
}

func untold(s Store) Store {
	w := &wrong{Store: s}
	w.intents = func(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
		_, err := s.SaveIntents(ctx, mirror, intents)
		return make([]int64, len(intents)), err
	}
	return w
}

func blindDefine(s Store) Store {
	w := &wrong{Store: s}
	w.define = func(ctx context.Context, d coordinator.Definition) error {
		if err := s.Define(ctx, d); !errors.Is(err, coordinator.ErrConflict) {
			return err
		}
		return nil
	}
	return w
}

func noContext(s Store) Store {
	w := &wrong{Store: s}
	w.save = func(ctx context.Context, mirror string, records []coordinator.Record) []error {
		return s.Save(context.WithoutCancel(ctx), mirror, records)
	}
	return w
}

// ownIntents gives watches of one handle what that handle wrote, and what was there.
func ownIntents(s Store) Store {
	var mu sync.Mutex
	own := map[string]bool{}
	w := renumbered(s, func(in coordinator.Intent) int64 {
		mu.Lock()
		defer mu.Unlock()
		if !own[in.Topic] {
			return -1
		}
		return in.Revision
	})
	w.intents = func(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
		mu.Lock()
		for _, in := range intents {
			own[in.Topic] = true
		}
		mu.Unlock()
		return s.SaveIntents(ctx, mirror, intents)
	}
	return w
}

func noDelete(s Store) Store {
	w := &wrong{Store: s}
	w.remove = func(context.Context, string, []cluster.Partition) error { return nil }
	return w
}
