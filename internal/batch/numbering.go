package batch

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// ErrNumbering: a batch whose offsets, record count and records do not agree, as some
// old clients wrote them and brokers of their time let pass. It is corrupt: two of its
// records would have one offset, or one would have an offset of the next batch.
var ErrNumbering = fmt.Errorf("%w: offsets and count do not agree", cluster.ErrCorrupt)

func misnumbered(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNumbering, fmt.Sprintf(format, args...))
}

// Numbered finds what the header alone shows: more records than offsets. It costs
// nothing. The error wraps ErrNumbering and says what differs.
func (h Header) Numbered() error {
	if offsets := int64(h.LastOffsetDelta()) + 1; int64(h.Count()) > offsets {
		return misnumbered("batch at offset %d: %d records at %d offsets", h.Base(), h.Count(), offsets)
	}
	return nil
}

// Numbered reads the whole batch: as many records as the header says, their offsets
// ascending, none twice, none behind the batch's last. Phantoms before the batch
// count, but have no order. The error wraps ErrNumbering where that is what is wrong.
func (d *Decoder) Numbered(h Header) error {
	return d.numbered(h, func(*Record) {})
}

// numbered visits the records that consumers see, if they are numbered right. A record's
// slices are valid during the call only.
func (d *Decoder) numbered(h Header, visit func(*Record)) error {
	if d.Reset(h); d.err == nil {
		d.err = h.Numbered()
	}
	at := h.Base()
	for d.Next() {
		r := &d.record
		switch {
		case r.Phantom && r.Offset < h.Base():
			continue
		case r.Phantom:
			return misnumbered("batch [%d,%d) holds a record at %d", h.Base(), h.Next(), r.Offset)
		case r.Offset < at:
			return misnumbered("batch [%d,%d) holds a record at %d behind one at %d", h.Base(), h.Next(), r.Offset, at-1)
		}
		at = r.Offset + 1
		visit(r)
	}
	return d.err
}
