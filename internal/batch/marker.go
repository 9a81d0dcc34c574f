package batch

// The types of transaction markers, as they stand in the key of a control record.
const (
	MarkerAbort  int16 = 0
	MarkerCommit int16 = 1
)

// Marker is the type of the transaction marker in a control batch. ok is false when
// the batch is no control batch, or holds no record any more: compaction may leave the
// batch of a marker without it. Brokers write markers uncompressed.
func (h Header) Marker() (kind int16, ok bool) {
	if !h.Control() || h.Count() == 0 || h.Codec() != None || len(h) < HeaderSize {
		return 0, false
	}
	c := cursor{b: h[HeaderSize:]}
	c.varint32() // length of the record
	c.skip(1)    // attributes
	c.varint64() // timestamp
	c.varint32() // offset
	key := c.nullable()
	if c.bad || len(key) < 4 { // version and type
		return 0, false
	}
	return int16(key[2])<<8 | int16(key[3]), true
}
