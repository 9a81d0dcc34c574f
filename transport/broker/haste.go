package broker

import (
	"sync"
	"time"
)

const (
	// hasteFor is how long fetches wait only briefly when partitions are on their way to us
	// or from us. A broker that begins to follow one of them asks for it with its next fetch,
	// and the one before may have nothing to bring.
	hasteFor  = 2 * time.Second
	hastyWait = 25 * time.Millisecond
	// heldFor bounds how long a full answer waits for what the other followers of a
	// partition say: longer than one that says nothing is waited for. With an error instead
	// the follower would rest for a second (replica.fetch.backoff.ms).
	heldFor = 2500 * time.Millisecond
)

// haste is when fetches wait briefly. It is safe for concurrent use.
type haste struct {
	mu    sync.Mutex
	until time.Time
	news  chan struct{} // closed when it begins
}

func newHaste() *haste { return &haste{news: make(chan struct{})} }

// begin lets it last from now on.
func (h *haste) begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !now.Before(h.until) {
		close(h.news)
		h.news = make(chan struct{})
	}
	h.until = now.Add(hasteFor)
}

// look reports whether there is haste; begins is closed when it begins again.
func (h *haste) look(now time.Time) (hasty bool, begins <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.until), h.news
}

// end is until when a fetch may wait for news, with what was found up to now.
func (t *fetchTerms) end(g *gathering, hasty bool) time.Time {
	switch {
	case g.held && g.size == 0:
		return later(t.deadline, t.began.Add(heldFor))
	case hasty && !g.held:
		return earlier(t.deadline, t.began.Add(hastyWait))
	}
	return t.deadline
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.Before(a) {
		return a
	}
	return b
}
