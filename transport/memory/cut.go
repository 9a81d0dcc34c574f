package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

func partitionsOfCuts(cuts []fetcher.Cut) []cluster.Partition {
	ps := make([]cluster.Partition, len(cuts))
	for i, c := range cuts {
		ps[i] = c.Partition
	}
	return ps
}

// Truncate cuts tails on every replica. One whose broker is down cuts when it comes
// back, before it follows or leads.
func (cl *Client) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	return callEach(ctx, cl, Op{Call: CallTruncate, Broker: -1, Partitions: partitionsOfCuts(cuts)}, len(cuts), func(i int) error {
		if cl.c.traits.Truncation != fetcher.TruncateExact {
			return fmt.Errorf("%v: truncate: %w", cuts[i].Partition, errors.ErrUnsupported)
		}
		return cl.truncate(cuts[i])
	})
}

func (cl *Client) truncate(cut fetcher.Cut) error {
	c := cl.c
	p, leader, err := c.leading(cut.Partition)
	if err == nil {
		err = cl.owns(p)
	}
	if err != nil {
		return err
	}
	if cut.Offset < 0 {
		return fmt.Errorf("%v: %w: offset %d", cut.Partition, cluster.ErrRefused, cut.Offset)
	}
	if cut.Offset >= leader.log.end && p.evenUpTo(cut.Offset) {
		return nil
	}
	if !c.traits.ReadOnly && cut.End > 0 && leader.log.end > cut.End {
		return fmt.Errorf("%v: %w: written up to offset %d since it was looked at, up to %d", cut.Partition, cluster.ErrUnavailable, leader.log.end, cut.End)
	}
	for i := range p.replicas {
		r := &p.replicas[i]
		if !c.up(r.broker) {
			if r.cut < 0 || cut.Offset < r.cut {
				r.cut = cut.Offset
			}
			continue
		}
		r.log.truncate(cut.Offset)
		r.high = min(r.high, r.log.end)
	}
	p.act()
	p.shortened(leader.log.end)
	p.epoch++ // who reads from here has to see that the log is another one
	if !c.traits.KeepsEpochs {
		leader.log.epochs.assign(p.epoch, leader.log.end)
	}
	if l := cl.lane(cut.Partition); l.gen > 0 {
		l.refusing = true // the log end has to be read again
	}
	c.grown(p)
	return nil
}

// evenUpTo reports that no replica reaches beyond an offset.
func (p *partition) evenUpTo(offset int64) bool {
	for i := range p.replicas {
		if p.replicas[i].log.end > offset && p.replicas[i].cut < 0 {
			return false
		}
	}
	return true
}

// owns refuses changes by a client that another has taken the partition over from,
// where the destination can tell.
func (cl *Client) owns(p *partition) error {
	s := &p.stretch
	if s.owner == nil || s.owner == cl || cl.c.options.Produce || s.stopped {
		return nil
	}
	if l := cl.lanes[p.id]; l == nil || l.gen == 0 {
		return nil // it never had it
	}
	return fmt.Errorf("%v: %w", p.id, cluster.ErrFenced)
}

// Trim moves log starts up on every replica. An offset above the high watermark
// means the high watermark.
func (cl *Client) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	return callEach(ctx, cl, Op{Call: CallTrim, Broker: -1, Partitions: partitionsOfCuts(cuts)}, len(cuts), func(i int) error {
		p, leader, err := cl.c.leading(cuts[i].Partition)
		if err == nil {
			err = cl.owns(p)
		}
		if err == nil {
			cl.c.trim(p, min(cuts[i].Offset, leader.high))
		}
		return err
	})
}

// trim moves the log start of all replicas that run; others take it over when they
// follow.
func (c *Cluster) trim(p *partition, to int64) {
	for i := range p.replicas {
		if r := &p.replicas[i]; c.up(r.broker) && (i == p.leader || !r.lagging) {
			r.log.trim(to)
		}
	}
	c.changed()
}

// StartAt makes an empty log start and end at an offset.
func (cl *Client) StartAt(ctx context.Context, s fetcher.Stretch, offset int64, progress func(done int64)) error {
	op := Op{Call: CallStartAt, Broker: -1, Partitions: []cluster.Partition{s.Partition}}
	_, err := call(ctx, cl, op, func() (struct{}, error) { return struct{}{}, cl.startAt(s, offset) })
	if err == nil && progress != nil {
		progress(offset)
	}
	return err
}

func (cl *Client) startAt(s fetcher.Stretch, offset int64) error {
	c := cl.c
	p, leader, err := c.leading(s.Partition)
	if err == nil {
		err = cl.owns(p)
	}
	if err != nil {
		return err
	}
	now := &p.stretch
	l := &leader.log
	switch {
	case now.mirror != "" && now.mirror != s.Mirror && p.mirrored():
		return fmt.Errorf("%v: %w: %s", s.Partition, cluster.ErrActive, now.mirror)
	case l.start == offset && l.end == offset:
		return nil
	case l.start != l.end || l.end > offset:
		return &cluster.OffsetError{
			Partition: s.Partition, Span: cluster.Span{From: offset, To: offset}, Err: cluster.ErrRefused,
			Detail: fmt.Sprintf("the log is not empty: [%d,%d)", l.start, l.end),
		}
	}
	l.restart(offset)
	leader.high = offset
	if now.mirror != s.Mirror {
		*now = stretch{mirror: s.Mirror, foreign: -1}
	}
	now.next, now.last = offset, nil
	p.act()
	cl.lane(s.Partition).refusing = true
	if c.options.Manual {
		c.replicate(p)
	}
	c.grown(p)
	return nil
}

// RaiseEpochs makes leader epochs at least what is asked for. The leader stays.
func (cl *Client) RaiseEpochs(ctx context.Context, raises []fetcher.EpochRaise) []error {
	ps := make([]cluster.Partition, len(raises))
	for i, r := range raises {
		ps[i] = r.Partition
	}
	return callEach(ctx, cl, Op{Call: CallRaiseEpochs, Broker: -1, Partitions: ps}, len(raises), func(i int) error {
		if !cl.c.traits.KeepsEpochs {
			return fmt.Errorf("%v: raise epochs: %w", raises[i].Partition, errors.ErrUnsupported)
		}
		p, leader, err := cl.c.leading(raises[i].Partition)
		if err == nil {
			err = cl.owns(p)
		}
		if err != nil || p.epoch >= raises[i].Epoch {
			return err
		}
		p.epoch = raises[i].Epoch
		if !p.mirrored() {
			leader.log.epochs.assign(p.epoch, leader.log.end)
		}
		cl.c.changed()
		return nil
	})
}
