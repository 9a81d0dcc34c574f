package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

const (
	// fillerRecords is the size of one filler batch: larger ones are slower to append.
	fillerRecords = 100_000
	// startTrims is after how many offsets the fillers so far are deleted.
	startTrims = 5_000_000
	// startTells is how often the log says how far it is.
	startTells = 30 * time.Second
)

// StartAt leaves the empty log of a partition with start and end at offset: it is
// filled with records that are deleted on the way. They carry the key
// "__mirror"; whoever reads meanwhile sees those of the last seconds. Work
// that was broken off goes on where the log ends. It needs the right to delete records,
// and a topic whose cleanup.policy has delete; where it is compact alone Kafka refuses to
// delete, and so does StartAt.
func (c *Cluster) StartAt(ctx context.Context, s fetcher.Stretch, offset int64, progress func(done int64)) error {
	looks, err := c.halted(ctx, []fetcher.Stretch{s})
	if err != nil {
		return err
	}
	l := &looks[0]
	c.readTails(ctx, []fetcher.Stretch{s}, looks)
	if l.err != nil {
		return l.err
	}
	if err := c.fillable(ctx, s.Partition, l, offset); err != nil {
		return err
	}
	if err := c.fill(ctx, s.Partition, l, offset, progress); err != nil {
		return err
	}
	if offset > l.logStart {
		if err := c.Trim(ctx, []fetcher.Cut{{Partition: s.Partition, Offset: offset}})[0]; err != nil {
			return err
		}
	}
	c.lane(s.Partition).forget()
	return nil
}

// fillable: nothing but fillers stands in the log, they can be deleted, and there are not
// too many.
func (c *Cluster) fillable(ctx context.Context, p cluster.Partition, l *look, offset int64) error {
	refuse := func(format string, args ...any) error {
		return &cluster.OffsetError{Partition: p, Span: cluster.Span{From: offset, To: offset}, Err: cluster.ErrRefused, Detail: fmt.Sprintf(format, args...)}
	}
	n := offset - l.logEnd
	switch {
	case n < 0:
		return refuse("the log ends at %d already", l.logEnd)
	case l.last != nil && l.last.producerID != l.own.filler():
		return refuse("the log is not empty: it holds %v", cluster.Span{From: l.logStart, To: l.logEnd})
	case n > c.cfg.MaxStartFill:
		now := time.Now()
		f := (&filling{from: l.logEnd, at: l.logEnd}).shown(offset, fillerCost, now)
		return refuse("%d offsets would have to be filled (about %d MB, %v), the limit MaxStartFill is %d: raise it, or begin the copy elsewhere (Options.Start)",
			n, f.Bytes>>20, f.Until.Sub(now).Round(100*time.Millisecond), c.cfg.MaxStartFill)
	case n > 0 && c.topicFill(ctx, p.Topic).keeps:
		return refuse("the topic's cleanup.policy has no delete, so that what fills it cannot be deleted: give it compact,delete while the copy begins")
	}
	return nil
}

// fill appends fillers from the log end up to offset. They are compare-and-append
// like everything else: a retry cannot double them.
func (c *Cluster) fill(ctx context.Context, p cluster.Partition, l *look, offset int64, progress func(int64)) error {
	log := c.cfg.Logger.With("topic", p.Topic, "partition", p.Partition)
	now := time.Now()
	f, told, trimmed := filling{from: l.logEnd, at: l.logEnd, began: now, last: now}, now, l.logStart
	if f.at < offset {
		log.InfoContext(ctx, "the log is filled to start where the source's does", "filling", f.shown(offset, fillerCost, now))
	}
	lane := c.lane(p)
	defer lane.start(filling{}, 0)
	var b []byte
	for f.at < offset {
		lane.start(f, offset)
		if err := ctx.Err(); err != nil {
			return err
		}
		sent, n := time.Now(), min(fillerRecords, offset-f.at)
		b = c.fillers.of(int(n)).Append(b[:0], sent.UnixMilli())
		if err := c.fillOnce(ctx, p, l.own, f.at, n, b); err != nil {
			return err
		}
		now = time.Now()
		f.at, f.last = f.at+n, now
		if progress != nil {
			progress(f.at)
		}
		if now.Sub(told) >= startTells {
			told = now
			log.InfoContext(ctx, "the log is being filled", "filling", f.shown(offset, fillerCost, now))
		}
		// The first time early: who may not delete hears of it before all is filled.
		if f.at-trimmed >= startTrims || trimmed == l.logStart && offset-f.at > startTrims {
			if err := c.Trim(ctx, []fetcher.Cut{{Partition: p, Offset: f.at}})[0]; err != nil {
				return err
			}
			trimmed = f.at
		}
	}
	log.DebugContext(ctx, "the log is filled", "took", time.Since(f.began))
	return nil
}

// start shows how far StartAt is on its way to an offset; 0: it is over.
func (l *lane) start(f filling, to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting, l.startTo = f, to
}

// fillOnce appends one batch of n fillers at pos.
func (c *Cluster) fillOnce(ctx context.Context, p cluster.Partition, own ownIDs, pos, n int64, b []byte) error {
	batch.Header(b).Patch(batch.Patch{LeaderEpoch: cluster.NoEpoch, ProducerID: own.filler(), BaseSequence: sequence(pos)})
	// Whoever gives up learns it when nothing is under way any more.
	bases, errs := c.produceEach(context.WithoutCancel(ctx), []cluster.Partition{p}, [][]byte{b})
	if errs[0] != nil {
		return errs[0]
	}
	if bases[0] != pos {
		return &cluster.OffsetError{Partition: p, Span: cluster.Span{From: bases[0], To: bases[0] + n}, Err: cluster.ErrDisplaced,
			Detail: fmt.Sprintf("a filler belongs at %d", pos)}
	}
	return nil
}
