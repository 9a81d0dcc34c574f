package lead

import "sync/atomic"

// run is what one Append handed over. The window and every answer with bytes of it hold
// it; nobody reads them any more when none does.
type run struct {
	holds   atomic.Int32
	free    func()
	batches int
	end     int64 // offset after its last batch
	done    func(next int64, landed int, err error)
	err     error // was refused: waits for those before it only to be answered in order
}

// release gives one hold back, and the bytes with the last one.
func (r *run) release() {
	if r.holds.Add(-1) == 0 && r.free != nil {
		r.free()
	}
}

// let gives one hold back, and appends the run when it was the last one.
func (r *run) let(gone []*run) []*run {
	if r.holds.Add(-1) == 0 {
		return append(gone, r)
	}
	return gone
}

// entry is one batch of the window.
type entry struct {
	base, next int64
	bytes      []byte
	run        *run
}

// window is the end of the log: what has been appended and is still in memory.
type window struct {
	entries []entry
	head    int   // entries before it are gone
	low     int64 // from here to the log's end the window holds everything
	size    int64 // bytes of all entries
	below   int   // entries before it end at mark or below
	mark    int64
	held    int64 // bytes of those
}

func (w *window) live() []entry { return w.entries[w.head:] }

// push takes a batch, and a hold of its run.
func (w *window) push(e entry) {
	e.run.holds.Add(1)
	w.entries = append(w.entries, e)
	w.size += int64(len(e.bytes))
}

// find is the index in live of the first batch that ends behind offset.
func (w *window) find(offset int64) int {
	live := w.live()
	lo, hi := 0, len(live)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); live[mid].next <= offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// base is where the batch that holds offset begins; offset itself when none does, and
// false when it has left the window.
func (w *window) base(offset int64) (int64, bool) {
	if i := w.find(offset); i < len(w.live()) && w.live()[i].base < offset {
		return w.live()[i].base, true
	}
	return offset, offset >= w.low
}

// before is the end of what remains when the batches that end behind offset go; offset
// itself when nothing is known there.
func (w *window) before(offset int64) int64 {
	switch i := w.find(offset); {
	case offset < w.low:
		return offset
	case i == 0:
		return w.low
	default:
		return w.live()[i-1].next
	}
}

// heldTo is how many bytes the batches that end at mark or below have.
func (w *window) heldTo(mark int64) int64 {
	if mark < w.mark {
		w.below, w.held = w.head, 0
	}
	w.mark = mark
	for w.below < len(w.entries) && w.entries[w.below].next <= mark {
		w.held += int64(len(w.entries[w.below].bytes))
		w.below++
	}
	return w.held
}

// drop takes away from the head what the quorum has, up to offset quorum, as far as
// everyone waited for has it too, up to offset all, or it is more than limit. It appends
// the runs that nobody holds any more.
func (w *window) drop(quorum, all, limit int64, gone []*run) []*run {
	for w.head < len(w.entries) {
		e := &w.entries[w.head]
		if e.next > quorum || e.next > all && w.heldTo(quorum) <= limit {
			break
		}
		w.low = e.next
		w.size -= int64(len(e.bytes))
		if w.head < w.below {
			w.held -= int64(len(e.bytes))
		}
		gone = e.run.let(gone)
		*e = entry{}
		w.head++
		w.below = max(w.below, w.head)
	}
	w.pack()
	return gone
}

// pack closes the gap at the front when it is the larger part.
func (w *window) pack() {
	if w.head == 0 || w.head*2 < len(w.entries) {
		return
	}
	n := copy(w.entries, w.entries[w.head:])
	clear(w.entries[n:])
	w.entries = w.entries[:n]
	w.below -= w.head
	w.head = 0
}

// cut takes away all batches that end behind offset, and appends the runs that nobody
// holds any more.
func (w *window) cut(offset int64, gone []*run) []*run {
	n := w.head + w.find(offset)
	for i := n; i < len(w.entries); i++ {
		w.size -= int64(len(w.entries[i].bytes))
		gone = w.entries[i].run.let(gone)
		w.entries[i] = entry{}
	}
	w.entries = w.entries[:n]
	w.low = min(w.low, offset)
	w.mark, w.below, w.held = -1, w.head, 0
	return gone
}

// lacking is how many batches of a run are in the window and end behind offset.
func (w *window) lacking(r *run, offset int64) (n int) {
	for i := len(w.entries) - 1; i >= w.head && w.entries[i].next > offset; i-- {
		if w.entries[i].run == r {
			n++
		}
	}
	return n
}

// after is the offset after n batches from offset on.
func (w *window) after(offset int64, n int) int64 { return w.live()[w.find(offset)+n-1].next }

// read gives the batches from offset on, as many as fit into limit bytes, and unless
// strict one at least, with a hold of each of their runs.
func (w *window) read(offset int64, limit int, strict bool) (records [][]byte, size int, runs []*run) {
	if limit <= 0 {
		return nil, 0, nil
	}
	live := w.live()
	first := w.find(offset)
	end, kinds := first, 0
	for ; end < len(live); end++ {
		n := len(live[end].bytes)
		if size+n > limit && (end > first || strict) {
			break
		}
		if size += n; end == first || live[end].run != live[end-1].run {
			kinds++
		}
	}
	if end == first {
		return nil, 0, nil
	}
	records = make([][]byte, 0, end-first)
	runs = make([]*run, 0, kinds)
	for i, e := range live[first:end] {
		records = append(records, e.bytes)
		if i == 0 || runs[len(runs)-1] != e.run {
			e.run.holds.Add(1)
			runs = append(runs, e.run)
		}
	}
	return records, size, runs
}
