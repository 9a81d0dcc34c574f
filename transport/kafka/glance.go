package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// trust is how long a log end is believed that nobody looked at. Within it,
// another writer is found by where our next batch lands; after it, by a look
// before that batch is sent, so that it does not land at all. A partition pays a
// round trip for that at the first record after a rest, and a process that was
// frozen pays it when it wakes up.
const trust = time.Second

// resting reports that the log end has to be looked at before anything is sent.
func (l *lane) resting(now time.Time) bool {
	return l.inflight == 0 && l.err == nil && l.id != 0 && now.Sub(l.looked) > trust
}

// glance looks at the log end of a lane that rested. The lane is not idle
// meanwhile, so Ends waits for it.
func (c *Cluster) glance(ctx context.Context, l *lane, broker int32) {
	began := time.Now()
	end, err := c.logEnd(ctx, l.p, broker)
	l.mu.Lock()
	l.looking = false
	switch {
	case l.err != nil: // halted meanwhile
	case err != nil:
		c.stale(l.p)
		l.failNext(at(l.p, err))
	case end != l.end:
		l.failNext(&cluster.OffsetError{Partition: l.p, Span: cluster.Span{From: l.end, To: max(end, l.end)}, Err: cluster.ErrOutOfOrder,
			Detail: fmt.Sprintf("the log ends at %d, this worker's last append at %d", end, l.end)})
	default:
		l.looked = began
	}
	c.release(l)
}

// failNext fails the batch that would have been sent.
func (l *lane) failNext(err error) {
	if l.unsent < len(l.runs) {
		r := l.runs[l.unsent]
		l.fail(r, r.at(), err)
	}
}

// logEnd asks one broker for the end of a log it leads.
func (c *Cluster) logEnd(ctx context.Context, p cluster.Partition, broker int32) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	conn, err := c.conn(ctx, broker, slotAsk)
	if err != nil {
		return 0, err
	}
	end := int64(-1)
	errs := make([]error, 1)
	if err := listOffsets(ctx, conn, []cluster.Partition{p}, []int{0}, errs, latest, debugging, func(_ int, o int64) { end = o }); err != nil {
		return 0, err
	}
	return end, errs[0]
}
