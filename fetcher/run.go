package fetcher

import (
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
)

// A response keeps a fetched buffer until the last run that points into it has
// been answered. It begins with one reference, its maker's own.
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
// destination. Runs are pooled, with their slice and their done function.
type run struct {
	t       *tracker
	session *session
	from    *response
	batches []cluster.Batch
	bytes   int64
	gen     uint32
	result  Result
	done    func(Result) // bound once to answered
}

var runs = sync.Pool{New: func() any {
	r := &run{batches: make([]cluster.Batch, 0, 64)}
	r.done = r.answered
	return r
}}

func newRun(s *session, t *tracker, from *response) *run {
	r := runs.Get().(*run)
	r.session, r.t, r.from, r.gen = s, t, from, t.gen
	from.refs.Add(1)
	return r
}

// answered is the destination's call when the run's outcome is known: the bytes
// are free from here on, and the session is told.
func (r *run) answered(res Result) {
	r.result = res
	r.from.done()
	r.from = nil
	r.session.box.put(message{run: r})
}

// drop gives a run back that was never handed to the destination.
func (r *run) drop() {
	if r.from != nil {
		r.from.done()
	}
	r.recycle()
}

func (r *run) recycle() {
	clear(r.batches)
	r.batches = r.batches[:0]
	r.t, r.session, r.from, r.bytes, r.result = nil, nil, nil, 0, Result{}
	runs.Put(r)
}
