package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// fillerRecords is the size of one filler batch: larger ones are slower to append.
const fillerRecords = 100_000

// StartAt leaves the empty log of a partition with start and end at offset: it is
// filled with records that are deleted at once. Work that was broken off goes on
// where the log ends. The topic must not be compacted meanwhile, and deleting
// needs the right to delete.
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
	if err := c.fillable(s.Partition, l, offset); err != nil {
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

// fillable: nothing but fillers stands in the log.
func (c *Cluster) fillable(p cluster.Partition, l *look, offset int64) error {
	refuse := func(format string, args ...any) error {
		return &cluster.OffsetError{Partition: p, Span: cluster.Span{From: offset, To: offset}, Err: cluster.ErrRefused, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case l.logEnd > offset:
		return refuse("the log ends at %d already", l.logEnd)
	case l.last != nil && l.last.producerID != l.own.filler():
		return refuse("the log is not empty: it holds %v", cluster.Span{From: l.logStart, To: l.logEnd})
	case offset-l.logEnd > c.cfg.MaxStartFill:
		return refuse("%d offsets would have to be filled, the limit MaxStartFill is %d", offset-l.logEnd, c.cfg.MaxStartFill)
	}
	return nil
}

// fill appends fillers from the log end up to offset. They are compare-and-append
// like everything else: a retry cannot double them.
func (c *Cluster) fill(ctx context.Context, p cluster.Partition, l *look, offset int64, progress func(int64)) error {
	var filler *batch.Filler
	size := int64(0)
	var b []byte
	for pos := l.logEnd; pos < offset; {
		if n := min(fillerRecords, offset-pos); n != size {
			filler, size = batch.NewFiller(int(n), batch.Zstd, []byte(fillerKey)), n
		}
		b = filler.Append(b[:0], time.Now().UnixMilli())
		batch.Header(b).Patch(batch.Patch{LeaderEpoch: cluster.NoEpoch, ProducerID: l.own.filler(), BaseSequence: sequence(pos)})
		if err := ctx.Err(); err != nil {
			return err
		}
		// Whoever gives up learns it when nothing is under way any more.
		bases, errs := c.produceEach(context.WithoutCancel(ctx), []cluster.Partition{p}, [][]byte{b})
		if errs[0] != nil {
			return errs[0]
		}
		if bases[0] != pos {
			return &cluster.OffsetError{Partition: p, Span: cluster.Span{From: bases[0], To: bases[0] + size}, Err: cluster.ErrDisplaced,
				Detail: fmt.Sprintf("a filler belongs at %d", pos)}
		}
		pos += size
		if progress != nil {
			progress(pos)
		}
	}
	return nil
}
