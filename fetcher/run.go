package fetcher

import (
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
)

// A response keeps a fetched buffer until nobody needs the bytes of the last run
// that points into it. It begins with one reference, its maker's own.
type response struct {
	refs    atomic.Int32
	release func()
	size    int // bytes it keeps
}

func newResponse(release func(), size int) *response {
	r := &response{release: release, size: size}
	r.refs.Store(1)
	return r
}

func (r *response) done() {
	if r.refs.Add(-1) == 0 {
		r.release()
	}
}

// A run is consecutive batches of one partition on their way to the
// destination. Runs are pooled, with their slice and their functions, once their
// bytes are free and their outcome has been dealt with: in either order.
type run struct {
	t       *tracker
	session *session
	from    *response
	batches []cluster.Batch
	bytes   int64
	gen     uint32
	result  Result
	uses    atomic.Int32
	free    func()       // bound once to freed
	done    func(Result) // bound once to answered
}

var runs sync.Pool

func newRun(s *session, t *tracker, from *response) *run {
	r, ok := runs.Get().(*run)
	if !ok {
		r = &run{batches: make([]cluster.Batch, 0, 64)}
		r.free, r.done = r.freed, r.answered
	}
	r.session, r.t, r.from, r.gen = s, t, from, t.gen
	from.refs.Add(1)
	r.uses.Store(2)
	return r
}

// freed is the destination's call when it does not need the bytes any more. What
// is not answered by then still counts as in flight.
func (r *run) freed() {
	from := r.from
	r.from = nil
	from.done()
	r.unused()
}

// answered is the destination's call when the run's outcome is known.
func (r *run) answered(res Result) {
	r.result = res
	r.session.box.put(message{run: r})
}

// drop gives a run back that was never handed to the destination.
func (r *run) drop() {
	r.freed()
	r.recycle()
}

// recycle ends the use of the outcome.
func (r *run) recycle() {
	clear(r.batches)
	r.batches = r.batches[:0]
	r.t, r.session, r.bytes, r.result = nil, nil, 0, Result{}
	r.unused()
}

func (r *run) unused() {
	if r.uses.Add(-1) == 0 {
		runs.Put(r)
	}
}
