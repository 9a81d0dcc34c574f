package fetcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

// Refill reads whole batches that a mirror has copied, as its source has them: the first
// holds offset or is the first after it; about maxBytes, in memory of their own. What the
// source does not have any more, or has otherwise, is an error. Safe for concurrent use.
type Refill func(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error)

// Refiller is the optional ability of a destination to complete a replica that lacks
// records which no other one has any more.
type Refiller interface {
	// RefillFrom gives the way to a mirror's source while the mirror runs; nil takes it back.
	RefillFrom(mirror string, read Refill)
}

// Unchanged are the first of a source's batches, as far as they are those that a history
// tells of: an epoch and an offset name one batch for ever. Where the first is not, the
// error says why. It is pure.
func Unchanged(p cluster.Partition, b []byte, history epoch.History) ([]byte, error) {
	w, end := batch.Walk(b), 0
	var why error
	for why == nil && w.Next() {
		if why = recorded(p, &w, history); why == nil {
			end = w.Offset() + len(w.Header())
		}
	}
	if why == nil && w.Err() != nil {
		why = fmt.Errorf("%v: %w", p, w.Err())
	}
	if end > 0 {
		why = nil
	}
	return b[:end:end], why
}

// recorded says why a batch is not the one that a history tells of.
func recorded(p cluster.Partition, w *batch.Walker, history epoch.History) error {
	h := w.Header()
	if h.Magic() != 2 {
		return fmt.Errorf("%v: %w: at offset %d is a message of an old format, which has no leader epoch", p, errors.ErrUnsupported, h.Base())
	}
	fault := &cluster.OffsetError{Partition: p, Span: cluster.Span{From: h.Base(), To: h.Next()}, Err: cluster.ErrCorrupt}
	if err := w.Check(); err != nil {
		fault.Detail = err.Error()
		return fault
	}
	// The log may begin inside of the batch, and its history there.
	if was := history.At(h.Next() - 1); was == cluster.NoEpoch || was != h.LeaderEpoch() {
		fault.Err, fault.Detail = cluster.ErrDiverged, fmt.Sprintf("the source has epoch %d there, what was mirrored had %d", h.LeaderEpoch(), was)
		return fault
	}
	return nil
}
