package fetcher

import (
	"slices"

	"github.com/clustermirror/mirror/internal/batch"
)

// visibility tells which batches of one answer readers of committed records see. It is
// what Kafka's consumer does (CompletedFetch): the answer names every aborted
// transaction that overlaps with it, whether it began in it or long before, so that
// nothing has to be remembered from one answer to the next, nor over a restart.
type visibility struct {
	stable  int64                // nothing from here on is decided; -1: not known
	begin   []AbortedTransaction // in the order of First; those that have not begun yet
	aborted []int64              // producers whose transaction is known to be aborted
}

// read begins with an answer.
func (v *visibility) read(part *Fetched) {
	v.stable, v.begin, v.aborted = part.LastStable, part.Aborted, v.aborted[:0]
	if len(v.begin) > 1 {
		slices.SortFunc(v.begin, func(a, b AbortedTransaction) int {
			switch {
			case a.First < b.First:
				return -1
			case a.First > b.First:
				return 1
			}
			return 0
		})
	}
}

// open reports whether the batch belongs to what is not decided yet.
func (v *visibility) open(h batch.Header) bool { return v.stable >= 0 && h.Base() >= v.stable }

// hides reports whether readers of committed records see nothing of a batch. It is
// asked about all batches of the answer, once and in their order.
func (v *visibility) hides(h batch.Header) bool {
	for len(v.begin) > 0 && v.begin[0].First < h.Next() {
		if !slices.Contains(v.aborted, v.begin[0].Producer) {
			v.aborted = append(v.aborted, v.begin[0].Producer)
		}
		v.begin = v.begin[1:]
	}
	at := -1
	if (h.Control() || h.Transactional()) && h.ProducerID() >= 0 {
		at = slices.Index(v.aborted, h.ProducerID())
	}
	if !h.Control() {
		return at >= 0
	}
	if kind, ok := h.Marker(); ok && kind == batch.MarkerAbort && at >= 0 {
		v.aborted = slices.Delete(v.aborted, at, at+1)
	}
	return true
}
