package batch

import (
	"encoding/binary"
	"math"
)

// builder puts one batch after the other together, record by record, without holding
// the records. Offsets that get no record stay holes, or are taken by phantoms.
type builder struct {
	deflater *deflater
	// The same for all batches: everything of the header that is not counted here.
	leaderEpoch int32
	attributes  int16 // the codec is in them
	horizon     int64 // base timestamp of batches with AttrDeleteHorizon
	stamp       int64 // maximum timestamp of batches with AttrLogAppendTime

	base        int64
	first, most int64 // base timestamp, largest timestamp
	count       int32
	payload     []byte
	body        []byte // of the record that comes next
}

// like makes batches with h's header, less the attribute bits taken away.
func (b *builder) like(h Header, without int16) {
	b.leaderEpoch, b.attributes = h.LeaderEpoch(), h.Attributes()&^without
	b.horizon, b.stamp = h.BaseTimestamp(), h.MaxTimestamp()
}

// start begins a batch.
func (b *builder) start(base int64) {
	b.base, b.count, b.most = base, 0, -1
	b.payload = b.payload[:0]
}

// add adds a record: its offset is at most 2^31-1 above the base.
func (b *builder) add(r *Record) {
	b.encode(r)
	b.put(r)
}

// encode makes the body of the record that put is called for next, and gives the
// bytes it takes at most.
func (b *builder) encode(r *Record) int {
	if b.count == 0 {
		b.first = r.Timestamp
		if b.attributes&AttrDeleteHorizon != 0 {
			b.first = b.horizon
		}
	}
	b.body = appendBody(b.body[:0], *r, r.Timestamp-b.first, int32(r.Offset-b.base))
	return len(b.body) + binary.MaxVarintLen32
}

func (b *builder) put(r *Record) {
	b.payload = binary.AppendVarint(b.payload, int64(len(b.body)))
	b.payload = append(b.payload, b.body...)
	b.most = max(b.most, r.Timestamp)
	b.count++
}

// finish is the batch [base, next), in memory of its own.
func (b *builder) finish(next int64) Header { return b.seal(next, b.count, nil) }

// seal writes header and payload; before is what comes first in the payload.
func (b *builder) seal(next int64, count int32, before []byte) Header {
	f := fields{
		base: b.base, leaderEpoch: b.leaderEpoch, attributes: b.attributes, last: int32(next - 1 - b.base),
		baseTimestamp: b.first, maxTimestamp: b.most, count: count,
	}
	if b.attributes&AttrLogAppendTime != 0 {
		f.maxTimestamp = b.stamp
	}
	if count == 0 { // as the cleaner leaves them
		f.baseTimestamp, f.maxTimestamp = -1, b.stamp
		if b.attributes&AttrDeleteHorizon != 0 {
			f.baseTimestamp = b.horizon
		}
	}
	payload := b.payload
	if len(before) > 0 { // phantoms are never compressed
		f.attributes &^= attrCodec
		payload = append(before, payload...)
	}
	codec := Codec(f.attributes & attrCodec)
	h := make([]byte, HeaderSize, HeaderSize+len(payload)/4)
	if codec == None {
		h = append(make([]byte, HeaderSize, HeaderSize+len(payload)), payload...)
	} else if count > 0 {
		h = b.deflater.append(h, codec, payload)
	}
	f.put(h)
	return h
}

// finishWhole is the batch [base, next) with phantoms in the offsets that got no
// record: AppendPhantoms says what they are. timestamp is theirs when there is no
// record to take it from.
func (b *builder) finishWhole(next, timestamp int64, key []byte) Header {
	missing := int(next - b.base - int64(b.count))
	if missing == 0 {
		return b.finish(next)
	}
	record := Record{Timestamp: b.first, Key: key}
	switch {
	case b.count == 0:
		record.Timestamp = timestamp
	case b.attributes&AttrDeleteHorizon != 0:
		record.Timestamp = b.most
	}
	if b.count == 0 {
		b.encode(&record) // sets the base timestamp
		b.most = max(b.most, timestamp)
	}
	before := make([]byte, 0, missing*(len(key)+12)+len(b.payload))
	for i := range missing {
		b.body = appendBody(b.body[:0], record, record.Timestamp-b.first, math.MinInt32+int32(i))
		before = binary.AppendVarint(before, int64(len(b.body)))
		before = append(before, b.body...)
	}
	return b.seal(next, int32(next-b.base), before)
}
