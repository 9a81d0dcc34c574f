package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// sync returns when everything was read that was in the topic when it was called.
func (t *tail) sync(ctx context.Context) error {
	ends := make([]int64, len(t.all))
	err := t.askUntil(ctx, t.all, slotAsk, func(ctx context.Context, conn *wire.Conn, parts []int32, errs map[int32]error) error {
		found := make(map[int32]int64, len(parts))
		err := t.list(ctx, conn, parts, latest, errs, func(n int32, offset int64) { found[n] = offset })
		if err != nil {
			return err
		}
		t.mu.Lock() // questions to several brokers are asked at a time
		defer t.mu.Unlock()
		for n, offset := range found {
			ends[n] = offset
		}
		return nil
	})
	if err != nil {
		return at(t.topic, err)
	}
	err = t.await(ctx, func() bool {
		for n, end := range ends {
			if t.view.parts[n].next < end {
				return false
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return at(t.topic, t.view.misplaced)
}

// await returns when done says so; it is asked under the lock, whenever something was
// read.
func (t *tail) await(ctx context.Context, done func() bool) error {
	for {
		t.mu.Lock()
		ok, changed, ended, trouble := done(), t.changed, t.err, t.trouble
		t.mu.Unlock()
		switch {
		case ended != nil:
			return at(t.topic, ended)
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			why := context.Cause(ctx)
			if errors.Is(why, context.DeadlineExceeded) {
				why = fmt.Errorf("%w: %w", cluster.ErrTimeout, why)
			}
			if trouble != nil {
				why = fmt.Errorf("%w: %w", why, trouble)
			}
			return at(t.topic, fmt.Errorf("not read to the end: %w", why))
		}
	}
}
