package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// Tail is the end of a destination log that is about to be cut.
type Tail struct {
	Mirror    string
	Partition cluster.Partition
	Span      cluster.Span // offsets that go
	// Batches gives the record batches of the span as the destination holds them,
	// the first of which may begin before it. It can be read once, while the hook
	// runs; the bytes of a piece are the reader's.
	Batches iter.Seq2[[]byte, error]
}

// salvageBytes are read of a tail at a time.
const salvageBytes = 1 << 20

// salvage hands a tail to the host before it is cut (I9).
func (m *Mirror) salvage(ctx context.Context, p cluster.Partition, span cluster.Span) error {
	if m.opts.Salvage == nil || span.Len() == 0 {
		return nil
	}
	err := m.opts.Salvage(ctx, Tail{Mirror: m.name, Partition: p, Span: span, Batches: batches(ctx, m.destination, p, span)})
	if err != nil {
		return fmt.Errorf("salvage of offsets %v: %w", span, err)
	}
	return nil
}

// batches reads whole batches of a span in pieces.
func batches(ctx context.Context, from fetcher.Reader, p cluster.Partition, span cluster.Span) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for at := span.From; at < span.To; {
			piece, err := from.Read(ctx, p, at, salvageBytes)
			if err == nil && len(piece) > 0 {
				var next int64
				if next, err = fetcher.EndOf(piece); next <= at && err == nil {
					err = fmt.Errorf("%w: asked for offset %d, got batches up to %d", cluster.ErrUnavailable, at, next)
				}
				at = next
			}
			if err != nil {
				yield(nil, fmt.Errorf("offset %d: %w", at, err))
				return
			}
			if len(piece) == 0 || !yield(piece, nil) { // nothing more: the rest are holes
				return
			}
		}
	}
}

// SalvageTo is a Salvage that keeps each tail as a file of record batches, as
// Kafka's own log segments are: DIR/mirror/topic-partition/offset.log, offset being
// the first that goes, in twenty digits. Kafka's dump tool reads them. A tail that is
// there already, from a try that was repeated, is not kept twice; another one from the
// same offset is offset.2.log, and so on.
func SalvageTo(dir string) func(context.Context, Tail) error {
	return func(_ context.Context, t Tail) error {
		folder := filepath.Join(dir, t.Mirror, t.Partition.String())
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		f, err := os.CreateTemp(folder, ".tail-*")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name()) // of no effect once it is renamed
		for piece, err := range t.Batches {
			if err == nil {
				_, err = f.Write(piece)
			}
			if err != nil {
				return errors.Join(err, f.Close())
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		return keep(f.Name(), filepath.Join(folder, fmt.Sprintf("%020d", t.Span.From)))
	}
}

// keep gives a file its name without taking the place of one that holds something else.
func keep(file, base string) error {
	for n, name := 2, base+".log"; ; n, name = n+1, fmt.Sprintf("%s.%d.log", base, n) {
		same, err := sameFile(file, name)
		switch {
		case errors.Is(err, os.ErrNotExist) || same:
			return os.Rename(file, name)
		case err != nil:
			return err
		}
	}
}

// sameFile reports whether two files hold the same bytes.
func sameFile(a, b string) (bool, error) {
	one, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer one.Close()
	other, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer other.Close()
	x, y := make([]byte, salvageBytes), make([]byte, salvageBytes)
	for {
		n, err := io.ReadFull(one, x)
		k, otherErr := io.ReadFull(other, y)
		switch {
		case !bytes.Equal(x[:n], y[:k]):
			return false, nil
		case err == io.EOF || err == io.ErrUnexpectedEOF: // of both, since as much was read
			return true, nil
		case err != nil || otherErr != nil:
			return false, errors.Join(err, otherErr)
		}
	}
}
