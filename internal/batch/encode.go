package batch

import (
	"encoding/binary"

	"github.com/clustermirror/mirror/internal/crc32c"
)

// Spec describes a batch to encode. The zero value of each field but Records is
// the plain case.
type Spec struct {
	Base        int64
	LeaderEpoch int32
	Codec       Codec
	Attributes  int16     // Attr bits
	Producer    *Producer // nil: not idempotent, all three fields -1
	// Records carry absolute offsets; when all of them are zero they are numbered
	// from Base on. Record.Phantom is not looked at: the offset decides.
	Records []Record
	// Next is the offset after the batch where that is more than one after the last
	// record: compaction leaves such batches. 0: after the last record.
	Next int64
	// Timestamp is the append time of a batch with AttrLogAppendTime and the delete
	// horizon of one with AttrDeleteHorizon. Without them it is not looked at.
	Timestamp int64
	// AppendTime is the append time of a batch that has both bits: the cleaner gives
	// horizons to batches with log append time too. 0: Timestamp is both.
	AppendTime int64
}

// Producer is who wrote a batch, for idempotence.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32 // of the first record
}

// Encode builds a batch as a client would send it and a broker would store it, in
// memory of its own.
func Encode(s Spec) []byte {
	records := s.Records
	numbered := true
	for i := range records {
		numbered = numbered && records[i].Offset == 0
	}
	base, most := int64(-1), int64(-1)
	if len(records) > 0 {
		base, most = records[0].Timestamp, records[0].Timestamp
	}
	if s.Attributes&AttrDeleteHorizon != 0 {
		base = s.Timestamp
	}
	var payload, body []byte
	last := int32(0)
	for i, r := range records {
		delta := int32(r.Offset - s.Base)
		if numbered {
			delta = int32(i)
		}
		last = max(last, delta)
		most = max(most, r.Timestamp)
		body = appendBody(body[:0], r, r.Timestamp-base, delta)
		payload = binary.AppendVarint(payload, int64(len(body)))
		payload = append(payload, body...)
	}
	if s.Next > 0 {
		last = int32(s.Next - 1 - s.Base)
	}
	if s.Attributes&AttrLogAppendTime != 0 {
		most = s.Timestamp
		if s.Attributes&AttrDeleteHorizon != 0 && s.AppendTime != 0 {
			most = s.AppendTime
		}
	}
	f := fields{
		base: s.Base, leaderEpoch: s.LeaderEpoch, attributes: s.Attributes&^attrCodec | int16(s.Codec), last: last,
		baseTimestamp: base, maxTimestamp: most, producer: s.Producer, count: int32(len(records)),
	}
	b := append(make([]byte, HeaderSize, HeaderSize+len(payload)), deflate(s.Codec, payload)...)
	f.put(b)
	return b
}

// appendBody appends a record without its length.
func appendBody(dst []byte, r Record, timestamp int64, offset int32) []byte {
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timestamp)
	dst = binary.AppendVarint(dst, int64(offset))
	dst = appendNullable(dst, r.Key)
	dst = appendNullable(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendNullable(dst, h.Value)
	}
	return dst
}

// fields are the values of a header.
type fields struct {
	base                        int64
	leaderEpoch                 int32
	attributes                  int16
	last                        int32
	baseTimestamp, maxTimestamp int64
	producer                    *Producer
	count                       int32
}

// put writes the header of the whole batch b, whose payload is there already.
func (f fields) put(b []byte) {
	p := Producer{ID: -1, Epoch: -1, Sequence: -1}
	if f.producer != nil {
		p = *f.producer
	}
	be := binary.BigEndian
	be.PutUint64(b[atBase:], uint64(f.base))
	be.PutUint32(b[atLength:], uint32(len(b)-lengthOffset))
	be.PutUint32(b[atLeaderEpoch:], uint32(f.leaderEpoch))
	b[atMagic] = 2
	be.PutUint16(b[atAttributes:], uint16(f.attributes))
	be.PutUint32(b[atLastOffsetDelta:], uint32(f.last))
	be.PutUint64(b[atBaseTimestamp:], uint64(f.baseTimestamp))
	be.PutUint64(b[atMaxTimestamp:], uint64(f.maxTimestamp))
	be.PutUint64(b[atProducerID:], uint64(p.ID))
	be.PutUint16(b[atProducerEpoch:], uint16(p.Epoch))
	be.PutUint32(b[atBaseSequence:], uint32(p.Sequence))
	be.PutUint32(b[atCount:], uint32(f.count))
	be.PutUint32(b[atCRC:], crc32c.Checksum(b[atAttributes:]))
}
