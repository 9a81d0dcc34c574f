// Package batch reads, patches and builds Kafka record batches of format 2
// (magic 2, KIP-98) as bytes: the header in place, the checksum without reading
// the payload, the records of every codec.
package batch

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/crc32c"
)

// HeaderSize is the number of bytes before a batch's first record.
const HeaderSize = 61

// Where the fields stand. The checksum covers everything from attributes on:
// base offset, length, leader epoch and magic are outside of it.
const (
	atBase            = 0
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57
)

// lengthOffset is what the length field leaves out: base offset and itself.
const lengthOffset = 12

// The bits of a batch's attributes above the codec.
const (
	AttrLogAppendTime int16 = 1 << 3
	AttrTransactional int16 = 1 << 4
	AttrControl       int16 = 1 << 5
	AttrDeleteHorizon int16 = 1 << 6 // KIP-534: the base timestamp is the delete horizon

	attrCodec int16 = 7
)

// Header is a view over the bytes of one batch, at least HeaderSize of them.
// It owns nothing: whoever owns the bytes owns the header. Of a batch whose
// Magic is below 2 only Base, Length and Magic may be asked.
type Header []byte

// Base is the first offset.
func (h Header) Base() int64 { return h.int64(atBase) }

// Length is the size of the whole batch in bytes, as the batch says.
func (h Header) Length() int { return int(h.int32(atLength)) + lengthOffset }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (h Header) LeaderEpoch() int32 { return h.int32(atLeaderEpoch) }

// Magic is the message format; 2 is the one this package reads.
func (h Header) Magic() int8 { return int8(h[atMagic]) }

// CRC is the stored CRC-32C of all bytes from the attributes on.
func (h Header) CRC() uint32 { return binary.BigEndian.Uint32(h[atCRC:]) }

// Attributes are the raw attribute bits.
func (h Header) Attributes() int16 { return h.int16(atAttributes) }

// Codec says how the records are compressed.
func (h Header) Codec() Codec { return Codec(h.Attributes() & attrCodec) }

// LogAppendTime reports that the broker set the timestamp of all records: it is
// MaxTimestamp.
func (h Header) LogAppendTime() bool { return h.has(AttrLogAppendTime) }

// Transactional reports that the records are part of a transaction.
func (h Header) Transactional() bool { return h.has(AttrTransactional) }

// Control reports that the records are transaction markers, which no
// application sees.
func (h Header) Control() bool { return h.has(AttrControl) }

// DeleteHorizon reports that BaseTimestamp is the time from which the cleaner may
// drop the batch's tombstones. Records' timestamps are still relative to it.
func (h Header) DeleteHorizon() bool { return h.has(AttrDeleteHorizon) }

// LastOffsetDelta is the last offset, relative to Base. It stays when compaction
// removes the record that had it.
func (h Header) LastOffsetDelta() int32 { return h.int32(atLastOffsetDelta) }

// Next is the offset after the batch.
func (h Header) Next() int64 { return h.Base() + int64(h.LastOffsetDelta()) + 1 }

// BaseTimestamp is what the records' timestamps are relative to, in milliseconds.
func (h Header) BaseTimestamp() int64 { return h.int64(atBaseTimestamp) }

// MaxTimestamp is the largest timestamp of the records, in milliseconds; -1 when
// they have none.
func (h Header) MaxTimestamp() int64 { return h.int64(atMaxTimestamp) }

// ProducerID is -1 when the producer was not idempotent.
func (h Header) ProducerID() int64 { return h.int64(atProducerID) }

// ProducerEpoch is -1 when the producer was not idempotent.
func (h Header) ProducerEpoch() int16 { return h.int16(atProducerEpoch) }

// BaseSequence is the first record's sequence number; -1 without one.
func (h Header) BaseSequence() int32 { return h.int32(atBaseSequence) }

// Count is the number of records, as the header says. Compaction may leave 0.
func (h Header) Count() int32 { return h.int32(atCount) }

func (h Header) has(bit int16) bool { return h.Attributes()&bit != 0 }
func (h Header) int16(at int) int16 { return int16(binary.BigEndian.Uint16(h[at:])) }
func (h Header) int32(at int) int32 { return int32(binary.BigEndian.Uint32(h[at:])) }
func (h Header) int64(at int) int64 { return int64(binary.BigEndian.Uint64(h[at:])) }

// Check verifies that the header makes sense and that the checksum is right. It
// is the only thing in this package that reads a whole payload. The error wraps
// cluster.ErrCorrupt, or cluster.ErrOldFormat for magic 0 and 1.
func (h Header) Check() error {
	if err := h.sane(); err != nil {
		return err
	}
	return h.compare(crc32c.Checksum(h[atAttributes:h.Length()]))
}

// compare refuses a batch whose bytes give another checksum than it has.
func (h Header) compare(sum uint32) error {
	if sum != h.CRC() {
		return corrupt("batch at offset %d: checksum is %08x, its bytes give %08x", h.Base(), h.CRC(), sum)
	}
	return nil
}

// sane is Check without the checksum.
func (h Header) sane() error {
	if len(h) <= atMagic {
		return corrupt("%d bytes are no batch", len(h))
	}
	if m := h.Magic(); m == 0 || m == 1 {
		return fmt.Errorf("%w: magic %d at offset %d", cluster.ErrOldFormat, m, h.Base())
	}
	switch n := h.Length(); {
	case h.Magic() != 2:
		return corrupt("batch at offset %d: magic %d", h.Base(), h.Magic())
	case n < HeaderSize || n > len(h):
		return corrupt("batch at offset %d: length %d with %d bytes there", h.Base(), n, len(h))
	case h.Count() < 0:
		return corrupt("batch at offset %d: record count %d", h.Base(), h.Count())
	case h.LastOffsetDelta() < 0:
		return corrupt("batch at offset %d: last offset delta %d", h.Base(), h.LastOffsetDelta())
	case h.Base() < 0 || h.Base() > math.MaxInt64-int64(h.LastOffsetDelta())-1:
		return corrupt("base offset %d with last offset delta %d", h.Base(), h.LastOffsetDelta())
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", cluster.ErrCorrupt, fmt.Sprintf(format, args...))
}
