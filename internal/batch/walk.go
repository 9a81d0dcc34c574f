package batch

// minOldMessage is the smallest body of the old message formats: checksum,
// magic, attributes, and the lengths of a null key and a null value (magic 0).
const minOldMessage = 14

// Walker steps through concatenated batches, as fetch answers hold them:
//
//	for w := batch.Walk(b); w.Next(); {
//		h := w.Header()
//	}
//
// A last batch that is cut off ends the walk without an error and stays in Rest:
// brokers cut answers at a byte limit. A Walker allocates nothing, copies nothing
// and verifies no checksum unless asked.
type Walker struct {
	buf  []byte
	pos  int // start of the present batch
	next int // end of the present batch
	err  error

	sums Checksums
	at   int // of buf, in the bytes that sums speaks of
}

// Checksums gives CRC-32C checksums of bytes that were read when they came in.
type Checksums interface {
	// Checksum is that of the bytes from..to.
	Checksum(from, to int) uint32
}

// Walk starts before the first batch of b.
func Walk(b []byte) Walker { return Walker{buf: b} }

// Summed has Check take checksums from sums, to which b begins at the offset at; without
// sums it computes them.
func (w Walker) Summed(sums Checksums, at int) Walker {
	w.sums, w.at = sums, at
	return w
}

// Check is that of the present batch's Header.
func (w *Walker) Check() error {
	h := w.Header()
	if w.sums == nil {
		return h.Check()
	}
	if err := h.sane(); err != nil {
		return err
	}
	return h.compare(w.sums.Checksum(w.at+w.pos+atAttributes, w.at+w.pos+h.Length()))
}

// Next steps to the next whole batch and reports whether there is one.
func (w *Walker) Next() bool {
	if w.err != nil {
		return false
	}
	w.pos = w.next
	rest := Header(w.buf[w.pos:])
	if len(rest) <= atMagic {
		return false
	}
	size, magic := rest.Length(), rest.Magic()
	least := HeaderSize
	if magic == 0 || magic == 1 {
		least = lengthOffset + minOldMessage
	}
	switch {
	case magic < 0 || magic > 2:
		w.err = corrupt("byte %d of %d: magic %d", w.pos, len(w.buf), magic)
		return false
	case size < least:
		w.err = corrupt("byte %d of %d: batch length %d, least %d (magic %d)", w.pos, len(w.buf), size, least, magic)
		return false
	case size > len(rest):
		return false
	}
	w.next = w.pos + size
	return true
}

// Header is the present batch: exactly its bytes, capacity included. Its Magic
// may be 0 or 1: then it is one entry of an old message set, of which only Base,
// Length and Magic can be read.
func (w *Walker) Header() Header { return Header(w.buf[w.pos:w.next:w.next]) }

// Offset is the present batch's position in the bytes walked.
func (w *Walker) Offset() int { return w.pos }

// Rest is what lies behind the present batch, and after the walk what was not
// walked: a batch that was cut off, or the place of the error.
func (w *Walker) Rest() []byte { return w.buf[w.next:] }

// Err is why the walk ended early, wrapping cluster.ErrCorrupt and naming the
// byte; nil when all whole batches were walked.
func (w *Walker) Err() error { return w.err }
