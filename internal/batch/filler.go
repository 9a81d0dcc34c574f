package batch

import (
	"encoding/binary"
	"math"
)

// OwnProducers is the first producer id that mirrors use for what they write of their
// own. Clusters do not hand out ids as high.
const OwnProducers int64 = 1 << 62

// FenceKey is the key of the phantom that a stop leaves, where it has one.
const FenceKey = "__clustermirror_fence"

// AppendPhantoms appends to dst one uncompressed batch, at base offset 0 and
// without a producer (Patch sets both), that takes up n offsets, 1 at least, and
// shows nothing to consumers: n records with the given key (nil is null; a
// compacted topic refuses null) and null values whose offsets lie below the
// batch, -2^31 + i ascending. The broker counts them and gives them offsets;
// clients skip what is before the batch. timestamp is in milliseconds: give a
// neighbour's, so that look-ups by time stay as they were.
func AppendPhantoms(dst []byte, n int, timestamp int64, key []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	var body []byte
	for i := range n {
		body = appendBody(body[:0], Record{Key: key}, 0, math.MinInt32+int32(i))
		dst = binary.AppendVarint(dst, int64(len(body)))
		dst = append(dst, body...)
	}
	f := fields{last: int32(n - 1), baseTimestamp: timestamp, maxTimestamp: timestamp, count: int32(n)}
	f.put(dst[start:])
	return dst
}

// Filler appends batches of n plain records with one key and null values. They move
// a log over offsets that nobody reads any more, and are deleted afterwards. The payload is
// compressed once and used for every batch. Safe for concurrent use.
type Filler struct {
	n       int
	codec   Codec
	payload []byte
}

// NewFiller prepares batches of n records, 1 at least. By the key whoever sees one
// before it is deleted knows what it is; nil is null, which compacted topics refuse.
func NewFiller(n int, codec Codec, key []byte) *Filler {
	var payload, body []byte
	for i := range n {
		body = appendBody(body[:0], Record{Key: key}, 0, int32(i))
		payload = binary.AppendVarint(payload, int64(len(body)))
		payload = append(payload, body...)
	}
	return &Filler{n: n, codec: codec, payload: deflate(codec, payload)}
}

// Append appends one batch, at base offset 0 and without a producer (Patch sets
// both), to dst. timestamp is in milliseconds.
func (f *Filler) Append(dst []byte, timestamp int64) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = append(dst, f.payload...)
	h := fields{attributes: int16(f.codec), last: int32(f.n - 1), baseTimestamp: timestamp, maxTimestamp: timestamp, count: int32(f.n)}
	h.put(dst[start:])
	return dst
}
