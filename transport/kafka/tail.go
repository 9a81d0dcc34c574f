package kafka

import (
	"encoding/binary"

	"github.com/clustermirror/mirror/internal/batch"
)

// tail is the header of the last batch of a log.
type tail struct {
	base, next   int64
	producerID   int64
	epoch        int16
	baseSequence int32
	maxTimestamp int64
	control      bool
	coordinator  int32 // epoch of the coordinator in a marker; -1 in everything else
}

// tailOf reads a batch of which at least the header is there.
func tailOf(b []byte) *tail {
	h := batch.Header(b)
	t := &tail{base: h.Base(), next: h.Next(), producerID: h.ProducerID(), epoch: h.ProducerEpoch(),
		baseSequence: h.BaseSequence(), maxTimestamp: h.MaxTimestamp(), control: h.Control(), coordinator: -1}
	if t.control {
		// EndTransactionMarker: version and coordinator epoch. One that does not parse
		// belongs nowhere.
		_ = batch.Decode(h, func(r batch.Record) error {
			if len(r.Value) >= 6 {
				t.coordinator = int32(binary.BigEndian.Uint32(r.Value[2:]))
			}
			return nil
		})
	}
	return t
}

// shift is how far the sequence of a batch of ours is behind its offset, mod 2^31.
func (t *tail) shift() int64 { return (t.base - int64(t.baseSequence)) & lowBits }

// lastSequence is the sequence of its last record.
func (t *tail) lastSequence() int32 { return sequence(int64(t.baseSequence) + t.next - t.base - 1) }
