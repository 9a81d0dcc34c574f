package main

import (
	"context"
	"errors"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// rehearsal is a Controller over a copy of the state: what is done with it shows what
// would come of it.
func (d *desk) rehearsal(ctx context.Context) (*mirror.Controller, error) {
	copied, err := copyState(ctx, d.store)
	if err != nil {
		return nil, err
	}
	return newDesk(copied, d.reached.Logger)
}

// copyState copies what all mirrors have on record.
func copyState(ctx context.Context, from mirror.Store) (*coordinator.Memory, error) {
	to := coordinator.NewMemory()
	all, err := from.Definitions(ctx)
	if err != nil {
		return nil, err
	}
	for _, def := range all {
		def.Revision = 1
		records, err := from.Load(ctx, def.Name)
		if err != nil {
			return nil, err
		}
		for i := range records {
			records[i].StateEpoch = 1
		}
		intents, err := intentsOf(ctx, from, def.Name)
		if err != nil {
			return nil, err
		}
		_, err = to.SaveIntents(ctx, def.Name, intents)
		if err = errors.Join(err, to.Define(ctx, def), errors.Join(to.Save(ctx, def.Name, records)...)); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// intentsOf are the last wishes of operators.
func intentsOf(ctx context.Context, store coordinator.Store, name string) ([]coordinator.Intent, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch, err := store.Watch(ctx, name)
	if err != nil {
		return nil, err
	}
	select {
	case intents := <-ch:
		return intents, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
