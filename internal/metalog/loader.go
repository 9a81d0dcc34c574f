package metalog

import (
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// loader turns committed batches into images. It is pure: bytes in, images out.
type loader struct {
	credentials bool // keep them

	image Image // all that counts
	delta Delta // what image has over the last one that was taken
	tx    *inTx // nil outside of a transaction
	next  int64 // the first offset that was not read
	epoch int32 // of the last batch read
	codec batch.Decoder
	odd   []error // contradictions since the last take
}

// inTx is a transaction under way: what the image will be when it ends.
type inTx struct {
	image Image
	delta Delta
}

// load reads whole batches, checksums included; what lies below next is left out.
// After an error the loader is of no more use.
func (l *loader) load(b []byte) error {
	for len(b) > 0 {
		h, err := first(b)
		if err != nil {
			return err
		}
		b = b[h.Length():]
		if h.Next() <= l.next {
			continue
		}
		if err := l.batch(h); err != nil {
			return fmt.Errorf("metadata log at offset %d: %w", h.Base(), err)
		}
		l.next, l.epoch = h.Next(), h.LeaderEpoch()
		if l.tx == nil {
			l.image.Appended = time.UnixMilli(h.MaxTimestamp())
		}
	}
	return nil
}

// first is the batch at the start of b, checked. Short bytes are an error here.
func first(b []byte) (batch.Header, error) {
	if len(b) < batch.HeaderSize || batch.Header(b).Length() < batch.HeaderSize || batch.Header(b).Length() > len(b) {
		return nil, fmt.Errorf("%w: a metadata batch is cut short", cluster.ErrCorrupt)
	}
	h := batch.Header(b[:batch.Header(b).Length()])
	return h, h.Check()
}

// batch applies the records of one batch. Control batches are the quorum's own:
// leader changes, voters, begin and end of a snapshot.
func (l *loader) batch(h batch.Header) error {
	if h.Control() {
		return nil
	}
	offset := h.Base()
	for l.codec.Reset(h); l.codec.Next(); offset++ {
		if offset < l.next {
			continue
		}
		r, err := Decode(l.codec.Record().Value)
		if err != nil {
			return err
		}
		if _, ok := r.(BeginTransaction); ok { // what went before it counts
			l.image.Offset, l.image.Epoch = offset, h.LeaderEpoch()
		}
		l.apply(r)
	}
	return l.codec.Err()
}

func (l *loader) apply(r Record) {
	switch r.(type) {
	case nil:
		return
	case SetCredential, RemoveCredential:
		if !l.credentials {
			return
		}
	case BeginTransaction:
		l.tx = &inTx{image: l.image}
		return
	case EndTransaction:
		if l.tx != nil {
			l.image = l.tx.image
			l.delta.merge(&l.tx.delta)
			l.tx = nil
		}
		return
	case AbortTransaction:
		l.tx = nil
		return
	}
	image, delta := &l.image, &l.delta
	if l.tx != nil {
		image, delta = &l.tx.image, &l.tx.delta
	}
	next, err := image.Apply(r, delta)
	if err != nil && len(l.odd) < 10 {
		l.odd = append(l.odd, err)
	}
	*image = next
}

// take gives the image as of all batches read, what it has over the last one
// taken, and what contradicted it.
func (l *loader) take() (Image, Delta, error) {
	if l.tx == nil {
		l.image.Offset, l.image.Epoch = l.next, l.epoch
	}
	d, odd := l.delta, errors.Join(l.odd...)
	l.delta, l.odd = Delta{}, nil
	return l.image, d, odd
}
