package batch

// Record is one record of a batch.
type Record struct {
	Offset    int64
	Timestamp int64  // milliseconds
	Key       []byte // nil is null; an empty key is not
	Value     []byte // nil is null; an empty value is not
	Headers   []RecordHeader
	// Phantom: the offset is outside the batch's own range, so consumers skip the
	// record. Only its place in the count is of use (see AppendPhantoms).
	Phantom bool
}

// RecordHeader is one header of a record; order and repetitions are part of it.
type RecordHeader struct {
	Key   []byte // never null
	Value []byte // nil is null
}

// DefaultLimit is how many bytes the records of one batch may have
// uncompressed.
const DefaultLimit = 256 << 20

// Decoder reads the records of one batch after the other, whatever the codec:
//
//	for d.Reset(h); d.Next(); {
//		r := d.Record()
//	}
//	err := d.Err()
//
// It keeps its decompressors and its buffer from one batch to the next. The zero
// value is ready; it is for one goroutine at a time.
type Decoder struct {
	// Limit bounds the uncompressed records of a batch, in bytes; a batch above it
	// gives an error that wraps ErrLimit. Default: DefaultLimit.
	Limit int

	inflater inflater
	h        Header
	cursor   cursor // over the records that are still to come
	seen     int32
	record   Record
	headers  []RecordHeader
	err      error
}

// Reset starts with the records of h. It decompresses them all at once and
// verifies no checksum (Check does). The bytes of h must stay as they are until
// the last record was used.
func (d *Decoder) Reset(h Header) {
	d.h, d.cursor, d.seen, d.err = h, cursor{}, 0, h.sane()
	if d.err != nil || h.Count() == 0 {
		return // compaction leaves batches without records, of any codec
	}
	limit := d.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	var records []byte
	records, d.err = d.inflater.inflate(h, limit)
	d.cursor.b = records
}

// Next steps to the next record and reports whether there is one.
func (d *Decoder) Next() bool {
	if d.err != nil || d.h == nil {
		return false
	}
	if d.seen == d.h.Count() {
		if n := len(d.cursor.b); n > 0 {
			d.err = misnumbered("batch at offset %d: %d bytes after its %d records", d.h.Base(), n, d.seen)
		}
		return false
	}
	if len(d.cursor.b) == 0 {
		d.err = misnumbered("batch at offset %d: header says %d records, %d are there", d.h.Base(), d.h.Count(), d.seen)
		return false
	}
	body := cursor{b: d.cursor.take(d.cursor.varint32())}
	if !d.cursor.bad {
		d.parse(&body)
	}
	if d.cursor.bad || body.bad || len(body.b) > 0 {
		d.err = corrupt("batch at offset %d: record %d of %d does not parse", d.h.Base(), d.seen+1, d.h.Count())
		return false
	}
	d.seen++
	return true
}

// parse reads one record's body into d.record.
func (d *Decoder) parse(c *cursor) {
	c.skip(1) // attributes: none are defined for records
	r := &d.record
	r.Timestamp = d.h.BaseTimestamp() + c.varint64()
	if d.h.LogAppendTime() {
		r.Timestamp = d.h.MaxTimestamp()
	}
	delta := c.varint32()
	r.Offset = d.h.Base() + int64(delta)
	r.Phantom = delta < 0 || delta > d.h.LastOffsetDelta()
	r.Key = c.nullable()
	r.Value = c.nullable()
	r.Headers = nil
	n := c.varint32()
	if n < 0 || int(n) > len(c.b)/2 { // a header has two lengths at least
		if n != 0 {
			c.fail()
		}
		return
	}
	d.headers = d.headers[:0]
	for range n {
		key := c.take(c.varint32())
		d.headers = append(d.headers, RecordHeader{key, c.nullable()})
	}
	if n > 0 {
		r.Headers = d.headers
	}
}

// Record is the present record. Its slices are valid until the next call of Next
// or Reset and must not be written to.
func (d *Decoder) Record() Record { return d.record }

// Err is why the records ended early: it wraps cluster.ErrCorrupt (with the place
// and what is wrong; ErrNumbering where the count is), cluster.ErrOldFormat or ErrLimit. Nil when all records that
// the header promises were read and nothing was left over.
func (d *Decoder) Err() error { return d.err }

// Decode calls visit for each record of h, phantoms and control records
// included. The record's slices are valid during the call only. The error is
// visit's own or what Err says.
func (d *Decoder) Decode(h Header, visit func(Record) error) error {
	d.Reset(h)
	for d.Next() {
		if err := visit(d.record); err != nil {
			return err
		}
	}
	return d.err
}

// Decode is Decoder.Decode for a single batch; who reads many keeps a Decoder.
func Decode(h Header, visit func(Record) error) error { return new(Decoder).Decode(h, visit) }
