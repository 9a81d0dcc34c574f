package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// look is what Ends finds out about one partition on its way.
type look struct {
	evidence
	at            time.Time // before the ends were asked for
	roundTrip     time.Duration
	highWatermark int64
	endAfter      int64 // the log end after the producers were asked for; -1: the broker tells of none
	leader        fetcher.LeaderAnswer
	verdict       verdict
	err           error
}

// Ends reads the truth about each partition's log and begins the stretches.
func (c *Cluster) Ends(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	looks, err := c.halted(ctx, stretches)
	if err != nil {
		return nil, err
	}
	c.judgeAll(ctx, stretches, looks)
	c.standStill(ctx, stretches, looks)
	expiry := c.producerExpiry(ctx)
	ends := make([]fetcher.End, len(stretches))
	for i, s := range stretches {
		ends[i] = c.begin(s, &looks[i], expiry)
	}
	return ends, nil
}

// halted stops the partitions' lanes, waits for what is under way, and looks.
func (c *Cluster) halted(ctx context.Context, stretches []fetcher.Stretch) ([]look, error) {
	looks := make([]look, len(stretches))
	for i, s := range stretches {
		looks[i].err = c.halt(ctx, c.lane(s.Partition))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.lookAll(ctx, stretches, looks)
	return looks, ctx.Err()
}

// lookAll asks the leaders for ends and producers, each broker in a few requests
// for all of its partitions.
func (c *Cluster) lookAll(ctx context.Context, stretches []fetcher.Stretch, looks []look) {
	partitions := partitionsOf(stretches)
	// A topic may have been deleted and created again, by another process too: what is
	// remembered of it would give its log the ids of the old one. Where this fails, what
	// follows says so.
	_, _ = c.Leaders(ctx, partitions, true)
	now := time.Now()
	errs := c.atLeaders(ctx, partitions, slotAsk, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		return lookAt(ctx, conn, partitions, idx, errs, looks)
	})
	leaders, err := c.Leaders(ctx, partitions, false)
	for i, p := range partitions {
		l := &looks[i]
		l.at = now
		if l.err = errs[i]; l.err != nil {
			continue
		}
		if err != nil {
			l.err = at(p, err)
			continue
		}
		l.leader = leaders[i]
		if l.err = l.leader.Err; l.err != nil {
			continue
		}
		l.own = idsOf(stretches[i].Mirror, l.leader.TopicID, p.Partition)
		l.marks = marksOf(stretches[i].Mirror, l.leader.TopicID, p.Partition)
		l.keepOwn()
	}
}

// lookAt reads the ends before the producers: a worker that appends in between
// makes the producers look ahead of the end, never behind it. And it reads the log end once
// more, which tells whether one has.
func lookAt(ctx context.Context, conn *wire.Conn, partitions []cluster.Partition, idx []int, errs []error, looks []look) error {
	for _, i := range idx {
		looks[i].roundTrip, looks[i].endAfter = conn.RoundTrip(), -1
	}
	for _, q := range []struct {
		kind    int64
		replica int32
		found   func(i int, offset int64)
	}{
		{earliest, consumer, func(i int, o int64) { looks[i].logStart = o }},
		{latest, consumer, func(i int, o int64) { looks[i].highWatermark = o }},
		{latest, debugging, func(i int, o int64) { looks[i].logEnd = o }},
	} {
		if err := listOffsets(ctx, conn, partitions, idx, errs, q.kind, q.replica, q.found); err != nil {
			return err
		}
	}
	var remembered []int
	err := describeProducers(ctx, conn, partitions, idx, errs, func(i int, p *kmsg.DescribeProducersResponseTopicPartition) {
		if len(p.ActiveProducers) > 0 {
			remembered = append(remembered, i)
		}
		looks[i].states = looks[i].states[:0]
		for _, a := range p.ActiveProducers {
			looks[i].states = append(looks[i].states, producerState{a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp, a.CoordinatorEpoch})
		}
	})
	if err != nil || len(remembered) == 0 {
		return err
	}
	return listOffsets(ctx, conn, partitions, remembered, errs, latest, debugging, func(i int, o int64) { looks[i].endAfter = o })
}

// torn reports that what the verdict takes from the broker's memory may be of a later moment
// than its log end: where markers stand in the log, sequences that are right for the broker can
// be wrong for the log.
func (l *look) torn() bool {
	return l.endAfter != l.logEnd && (l.verdict.inferred || l.verdict.known && len(l.markers) > 0)
}

// keepOwn forgets the producers that are not this mirror's.
func (l *look) keepOwn() {
	kept := l.states[:0]
	l.markers = nil
	for _, s := range l.states {
		switch {
		case l.own.has(s.id):
			kept = append(kept, s)
		case l.marks.has(s.id):
			l.markers = append(l.markers, s)
		}
	}
	l.states = kept
}

// tailReads bounds the single reads under way at once.
const tailReads = 8

// judgeAll decides each stretch, reading the last batch where the brokers' memory
// does not do.
func (c *Cluster) judgeAll(ctx context.Context, stretches []fetcher.Stretch, looks []look) {
	var wg sync.WaitGroup
	room := make(chan struct{}, tailReads)
	for i := range looks {
		l := &looks[i]
		if l.err != nil {
			continue
		}
		if _, ok := settled(l.evidence); ok || stretches[i].New || l.logEnd <= l.logStart {
			if l.verdict = judge(l.evidence, stretches[i].New); l.torn() {
				l.err = fencedAt(stretches[i].Partition, l.logEnd, l.endAfter)
			}
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if l.last, l.err = c.lastBatch(ctx, stretches[i].Partition, l.logEnd); l.err != nil {
				return
			}
			l.verdict = judge(l.evidence, false)
			if l.torn() {
				l.err = fencedAt(stretches[i].Partition, l.logEnd, l.endAfter)
				return
			}
			if f := l.verdict.foreign; f != nil && l.own.stretches(l.last.producerID) {
				if l.err = c.narrow(ctx, stretches[i].Partition, l, f); l.filled {
					l.verdict = judge(l.evidence, false)
				}
			}
		})
	}
	wg.Wait()
}

// lastBatch reads the header of the batch before the log end. It can be read only
// below the high watermark, so it is waited for.
func (c *Cluster) lastBatch(ctx context.Context, p cluster.Partition, end int64) (*tail, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout/2)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		b, err := c.Read(ctx, p, end-1, 1)
		if err == nil && len(b) >= batch.HeaderSize {
			return tailOf(b), nil
		}
		// Above the high watermark the answer is empty, or OFFSET_OUT_OF_RANGE.
		if err != nil && !errors.Is(err, cluster.ErrOutOfRange) {
			return nil, err
		}
		if !sleep(ctx, wait) {
			return nil, at(p, fmt.Errorf("%w: the log end %d stays above the high watermark", cluster.ErrUnavailable, end))
		}
	}
}

// standStill looks a second time at logs in which the broker cannot be relied on: its
// memory of us expires with the age of the records, at any moment or already, and
// this process has not appended there itself. Or markers may be on their way to it,
// which it does not compare with its end. A log that grows meanwhile has another worker,
// or what was on its way has arrived.
func (c *Cluster) standStill(ctx context.Context, stretches []fetcher.Stretch, looks []look) {
	var again []fetcher.Stretch
	var idx []int
	oldest := time.Now().Add(-c.producerExpiry(ctx)).UnixMilli()
	for i := range looks {
		l := &looks[i]
		v := l.verdict
		expires := v.stamp != 0 && v.stamp <= oldest && !c.lane(stretches[i].Partition).began()
		if l.err != nil || !expires && !c.lane(stretches[i].Partition).unsure(v) {
			continue
		}
		again, idx = append(again, stretches[i]), append(idx, i)
	}
	if len(again) == 0 || !sleep(ctx, 500*time.Millisecond+rand.N(250*time.Millisecond)) {
		return
	}
	second := make([]look, len(again))
	c.lookAll(ctx, again, second)
	for k, i := range idx {
		switch {
		case second[k].err != nil:
			looks[i].err = second[k].err
		case second[k].logEnd != looks[i].logEnd:
			looks[i].err = fencedAt(again[k].Partition, looks[i].logEnd, second[k].logEnd)
		}
	}
}

func fencedAt(p cluster.Partition, from, to int64) error {
	return &cluster.OffsetError{Partition: p, Span: cluster.Span{From: from, To: to}, Err: cluster.ErrFenced,
		Detail: "the log grew by records that this worker did not append"}
}

func partitionsOf(stretches []fetcher.Stretch) []cluster.Partition {
	partitions := make([]cluster.Partition, len(stretches))
	for i, s := range stretches {
		partitions[i] = s.Partition
	}
	return partitions
}
