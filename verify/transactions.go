package verify

import (
	"encoding/binary"

	"github.com/clustermirror/mirror/internal/batch"
)

// fate is what became of a transaction.
type fate int

const (
	undecided fate = iota // no marker yet: nobody who reads committed records sees it
	committed
	aborted
	unknown // its marker stands where nothing was read
)

// transaction is what one producer wrote on one side between two markers. nil
// stands for records that are in none.
type transaction struct {
	fate   fate
	marker int64 // its offset, once there is one
	sum    Sum   // of its records, until it is known whether they count
	n      int64 // how many are in sum
}

// visible: readers of committed records see it.
func (t *transaction) visible() bool { return t == nil || t.fate == committed }

func (t *transaction) decided() bool { return t == nil || t.fate != undecided }

// transactions are those of one side that have no marker yet. What a marker ends is
// all that its producer wrote since the marker before it (KIP-98): the log itself
// says what the broker's list of aborted transactions would, and a comparison needs
// nobody's word for it.
type transactions map[int64]*transaction

// of is the transaction that a batch is part of.
func (ts transactions) of(h batch.Header) *transaction {
	if !h.Transactional() {
		return nil
	}
	t := ts[h.ProducerID()]
	if t == nil {
		t = &transaction{}
		ts[h.ProducerID()] = t
	}
	return t
}

// end settles the transaction that a control batch ends, and gives it; nil when it
// ends none that was seen.
func (ts transactions) end(h batch.Header, d *batch.Decoder) (*transaction, error) {
	if h.Count() == 0 {
		return nil, nil
	}
	d.Reset(h)
	if !d.Next() {
		return nil, d.Err()
	}
	key := d.Record().Key
	t := ts[h.ProducerID()]
	if t == nil || len(key) < 4 {
		return nil, nil
	}
	switch binary.BigEndian.Uint16(key[2:]) { // after the version: ControlRecordType
	case 0:
		t.fate = aborted
	case 1:
		t.fate = committed
	default:
		return nil, nil
	}
	t.marker = h.Base()
	delete(ts, h.ProducerID())
	return t, nil
}

// pair is what one transaction of the source and one of the destination have at the
// same offsets; either may be nil. The destination may also have nothing (gone).
type pair struct {
	source, destination *transaction
	gone                bool
}

func (p pair) decided() bool { return p.source.decided() && (p.gone || p.destination.decided()) }

// tally counts what cannot be judged before it is known how transactions ended. Its
// size does not depend on how much they wrote.
type tally struct {
	n     int64
	first []int64 // offsets, at most as many as differences are described
}

// verdict is what a pair comes to.
type verdict int

const (
	both        verdict = iota // readers of committed records see it on both sides
	absent                     // the destination lacks what the source has
	hidden                     // only who reads uncommitted records sees it at the destination
	exposed                    // the destination shows what was never committed
	leftOut                    // aborted, and not there: nobody misses it
	bothAborted                // the same, and aborted on both sides
	undecidable
)

// judged is the verdict once both fates are known, or will not be. end is where the
// destination's log ends: what a marker behind it has decided is not there yet.
func (p pair) judged(end int64) verdict {
	s, d := p.source, p.destination
	switch {
	case s != nil && s.fate == unknown || d != nil && d.fate == unknown:
		return undecidable
	case p.gone && s.visible():
		return absent
	case p.gone && s.fate == aborted:
		return leftOut
	case p.gone:
		return undecidable
	case s.visible() && d.visible():
		return both
	case d.visible():
		return exposed
	case s != nil && s.fate == aborted && d.fate == aborted:
		return bothAborted
	case s.visible() && (d.fate == aborted || s == nil || s.marker < end):
		return hidden
	}
	return undecidable
}
