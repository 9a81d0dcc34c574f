package batch

import (
	"bytes"
	"cmp"
	"fmt"
	"math"

	"github.com/clustermirror/mirror/cluster"
)

// DefaultMaxBytes is what Converter.MaxBytes is when nothing is said: below Kafka's
// default of max.message.bytes (1,048,588).
const DefaultMaxBytes = 1 << 20

// DefaultMaxOffsets is what Converter.MaxOffsets is when nothing is said.
const DefaultMaxOffsets = 20_000

// Converter makes batches that a produce request takes out of such as it refuses or
// would change. Whatever it makes reads the same: offsets, timestamps, keys, values and
// headers, null and empty kept apart. It has the leader epoch, the codec and the
// attributes of what it was made of, less what is said below, and no producer: Patch sets
// one. A batch that needs no change is handed back as the same bytes, producer included.
//
// What is given is never written to, and no checksum of magic 2 is verified (Check
// does that). Errors wrap cluster.ErrCorrupt (ErrNumbering, where numbers of the batch
// contradict each other), cluster.ErrControlBatch or ErrLimit, and name the offset.
//
// A delete horizon (KIP-534) needs no conversion: records' timestamps are relative to it
// as to any base timestamp, LogValidator does not look at the bit, and
// DefaultRecordBatch.setMaxTimestamp keeps it; releases that do not know it read the same
// timestamps (tried on 4.4.0 and 2.8.2: the bit was in the log afterwards). It is kept in what is made, too. Who would rather give the
// destination's readers their own delete.retention.ms takes the bit away: with Clear,
// or in place with Patch.ClearAttributes, since the timestamps do not depend on it.
//
// It keeps its compressors and buffers from call to call. The zero value is ready; it is
// for one goroutine at a time, and off the hot path: everything it changes is
// uncompressed, copied and compressed again.
type Converter struct {
	// Limit bounds the uncompressed records of one batch, in bytes; above it there is an
	// error that wraps ErrLimit. Default: DefaultLimit.
	Limit int
	// MaxBytes is how large a batch may be made; what is larger is split. One record
	// alone may be larger, and so may a batch that is handed back. Default:
	// DefaultMaxBytes.
	MaxBytes int
	// MaxOffsets is how many offsets a batch with phantoms may take up. Default:
	// DefaultMaxOffsets.
	MaxOffsets int64
	// KeepAppendTime keeps AttrLogAppendTime for a destination that leaves it alone.
	// Default: records get the append time as their own, which reads the same but for
	// its type.
	KeepAppendTime bool
	// Clear are attribute bits to take away, such as AttrTransactional. A batch that is
	// handed back with one of them is a copy.
	Clear int16
	// PhantomKey is the key of phantoms: a compacted topic refuses null. Default: null.
	PhantomKey []byte

	decoder  Decoder
	again    Decoder // of what is split
	deflater deflater
	builder  builder
}

func (c *Converter) limit() int        { return cmp.Or(max(c.Limit, 0), DefaultLimit) }
func (c *Converter) maxBytes() int     { return cmp.Or(max(c.MaxBytes, 0), DefaultMaxBytes) }
func (c *Converter) maxOffsets() int64 { return cmp.Or(max(c.MaxOffsets, 0), DefaultMaxOffsets) }
func (c *Converter) without() (bits int16) {
	bits = c.Clear &^ attrCodec
	if !c.KeepAppendTime {
		bits |= AttrLogAppendTime
	}
	return bits
}

// Producible reports whether a produce request takes the batch as it is, and readers of
// an ordinary topic (message.timestamp.type=CreateTime) then see what those of the
// source do: as many records as offsets, no append time, no control records, magic 2.
// It looks at the header only. Transactional batches count: Patch takes the bit away.
func (h Header) Producible() bool {
	return h.Magic() == 2 && int64(h.Count()) == int64(h.LastOffsetDelta())+1 && !h.LogAppendTime() && !h.Control()
}

// pass is h if it can stay as it is; nil if not.
func (c *Converter) pass(h Header) (Header, error) {
	if err := h.sane(); err != nil {
		return nil, err
	}
	if err := h.Numbered(); err != nil {
		return nil, err
	}
	switch {
	case h.Control():
		return nil, controlled(h)
	case h.Count() <= h.LastOffsetDelta() || h.LogAppendTime() && !c.KeepAppendTime:
		return nil, nil
	}
	if clear := c.Clear &^ attrCodec &^ AttrLogAppendTime; h.has(clear) {
		h = bytes.Clone(h)
		h.Patch(Patch{
			Base: h.Base(), LeaderEpoch: h.LeaderEpoch(), ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(),
			BaseSequence: h.BaseSequence(), ClearAttributes: clear,
		})
	}
	return h, nil
}

// records visits what consumers see of h.
func (c *Converter) records(h Header, visit func(*Record)) error {
	c.decoder.Limit = c.Limit
	return c.decoder.numbered(h, visit)
}

// build makes the builder one of batches like h.
func (c *Converter) build(h Header) *builder {
	c.builder.deflater = &c.deflater
	c.builder.like(h, c.without())
	c.builder.start(h.Base())
	return &c.builder
}

// CreateTime is h with the append time as the records' own time, in one batch that takes
// up the same offsets and has the same holes, of any size. Pieces and WithPhantoms do
// the same on the way.
func (c *Converter) CreateTime(h Header) (Header, error) {
	if err := h.sane(); err != nil {
		return nil, err
	}
	if !h.LogAppendTime() {
		return h, nil
	}
	b := c.build(h)
	b.attributes &^= AttrLogAppendTime
	if err := c.records(h, b.add); err != nil {
		return nil, err
	}
	return b.finish(h.Next()), nil
}

// fit appends h to into, in several batches if it is too large. Holes between the parts
// belong to none, and those at the ends stay.
func (c *Converter) fit(into []Header, h Header) ([]Header, error) {
	n := h.Count()
	if len(h) <= c.maxBytes() || n < 2 {
		return append(into, h), nil
	}
	b := builder{deflater: &c.deflater}
	b.like(h, 0)
	b.start(h.Base())
	var head Header
	at := h.Base()
	c.again.Limit = math.MaxInt // it was just made
	err := c.again.numbered(h, func(r *Record) {
		if b.count == n/2 && head == nil {
			head = b.finish(at)
			b.start(r.Offset)
		}
		b.add(r)
		at = r.Offset + 1
	})
	if err != nil {
		return into, err
	}
	tail := b.finish(h.Next())
	if into, err = c.fit(into, head); err != nil {
		return into, err
	}
	return c.fit(into, tail)
}

func controlled(h Header) error {
	return fmt.Errorf("%w: batch at offset %d", cluster.ErrControlBatch, h.Base())
}
