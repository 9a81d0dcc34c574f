package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

// Traits say what the destination can do.
func (cl *Client) Traits() fetcher.Traits { return cl.c.traits }

// Ends reads each log's ends and takes the stretches over: appends of every other
// client fail from now on. A stretch makes its topic read-only with the first thing
// that is done for it, not by being looked at. A request for a new one that is carried out
// when another was begun, or it was stopped, since the request was made is refused.
func (cl *Client) Ends(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	begun := cl.c.begun(stretches)
	ends, err := call(ctx, cl, Op{Call: CallEnds, Broker: -1, Partitions: partitionsOf(stretches)}, func() ([]fetcher.End, error) {
		ends := make([]fetcher.End, len(stretches))
		for i, s := range stretches {
			ends[i] = cl.begin(s, begun[i])
		}
		return ends, nil
	})
	if err != nil {
		return nil, err
	}
	return ends, cl.c.toldAll(ctx)
}

func partitionsOf(stretches []fetcher.Stretch) []cluster.Partition {
	ps := make([]cluster.Partition, len(stretches))
	for i, s := range stretches {
		ps[i] = s.Partition
	}
	return ps
}

// begin is Ends for one partition.
func (cl *Client) begin(s fetcher.Stretch, begun int64) fetcher.End {
	l := cl.lane(s.Partition)
	l.forget(fmt.Errorf("%v: %w: the log end was read before the answer came", s.Partition, cluster.ErrTimeout))
	p, leader, err := cl.c.leading(s.Partition)
	if err != nil {
		return fetcher.End{LeaderEpoch: cluster.NoEpoch, Err: err}
	}
	end := cl.c.endOf(p, leader)
	end.Ours = p.writtenBy(s.Mirror)
	now := &p.stretch
	switch {
	case now.mirror != "" && now.mirror != s.Mirror && p.mirrored():
		end.Err = fmt.Errorf("%v: %w: %s", s.Partition, cluster.ErrActive, now.mirror)
		return end
	case now.mirror == s.Mirror && now.superseded(s, end.LogEnd):
		end.Err = fmt.Errorf("%v: %w: its owner epoch is %d, this worker's %d", s.Partition, cluster.ErrFenced, now.turn, s.Owner)
		return end
	case s.New && now.gen != begun:
		end.Err = fmt.Errorf("%v: %w: begun or stopped since the request was made", s.Partition, cluster.ErrUnavailable)
		return end
	case s.New:
		*now = stretch{mirror: s.Mirror, foreign: -1, next: end.LogEnd}
		p.act()
	case now.mirror != s.Mirror:
		*now = stretch{mirror: s.Mirror, foreign: -1, next: end.LogEnd}
	case now.stopped:
		end.Stopped = true
		return end
	case now.foreign >= 0:
		end.Err = &cluster.OffsetError{
			Partition: s.Partition, Span: cluster.Span{From: now.foreign, To: end.LogEnd}, Err: cluster.ErrForeignWrite,
		}
		return end
	case !now.acted:
		now.next = end.LogEnd
	}
	cl.c.gen++
	now.owner, now.gen, now.turn, now.refused = cl, cl.c.gen, s.Owner, 0
	l.topic, l.gen, l.end, l.handed, l.refusing = p.topic.id, now.gen, end.LogEnd, end.LogEnd, false
	return end
}

// endOf is what a log shows without regard to who asks.
func (c *Cluster) endOf(p *partition, leader *replica) fetcher.End {
	end := fetcher.End{
		LogStart: leader.log.start, LogEnd: leader.log.end, HighWatermark: min(leader.high, leader.log.end),
		LeaderEpoch: cluster.NoEpoch, TopicID: p.topic.id,
	}
	if c.traits.KeepsEpochs {
		end.LeaderEpoch = p.epoch
	}
	return end
}

// Fence ends stretches: no append of theirs lands from now on, whoever sent it, and
// clients may write. A destination of the produce kind gets one record that no
// consumer sees. What is stopped already stays as it is. A request that is carried out
// when the partition has been begun anew since it was made is refused.
func (cl *Client) Fence(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	begun := cl.c.begun(stretches)
	ends, err := call(ctx, cl, Op{Call: CallFence, Broker: -1, Partitions: partitionsOf(stretches)}, func() ([]fetcher.End, error) {
		ends := make([]fetcher.End, len(stretches))
		for i, s := range stretches {
			ends[i] = cl.fence(s, begun[i])
		}
		return ends, nil
	})
	if err != nil {
		return nil, err
	}
	return ends, cl.c.toldAll(ctx)
}

// begun says which stretches there are, by what grows whenever one is begun, taken over or
// stopped.
func (c *Cluster) begun(stretches []fetcher.Stretch) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]int64, len(stretches))
	for i, s := range stretches {
		if p, err := c.find(s.Partition); err == nil {
			out[i] = p.stretch.gen
		}
	}
	return out
}

func (cl *Client) fence(s fetcher.Stretch, begun int64) fetcher.End {
	c := cl.c
	p, leader, err := c.leading(s.Partition)
	if err != nil {
		return fetcher.End{LeaderEpoch: cluster.NoEpoch, Err: err}
	}
	now := &p.stretch
	if now.mirror == s.Mirror && !now.stopped && now.gen != begun {
		return fetcher.End{LeaderEpoch: cluster.NoEpoch, Err: fmt.Errorf("%v: %w: begun anew since the request was made", s.Partition, cluster.ErrFenced)}
	}
	if now.mirror != s.Mirror {
		if p.mirrored() {
			return fetcher.End{LeaderEpoch: cluster.NoEpoch, Err: fmt.Errorf("%v: %w: %s", s.Partition, cluster.ErrActive, now.mirror)}
		}
		*now = stretch{mirror: s.Mirror, foreign: -1, next: leader.log.end}
	}
	cl.lane(s.Partition).forget(fmt.Errorf("%v: %w: the mirror was stopped", s.Partition, cluster.ErrFenced))
	c.gen++
	now.gen = c.gen // also when it was stopped before: what was asked for since begins nothing
	if !now.stopped {
		now.stopped, now.owner = true, nil
		if c.options.Produce {
			c.appendFence(p, leader)
		}
	}
	end := c.endOf(p, leader)
	end.Stopped, end.Ours = true, p.writtenBy(s.Mirror)
	return end
}

// appendFence puts a record that no consumer sees behind a stretch.
func (c *Cluster) appendFence(p *partition, leader *replica) {
	timestamp := time.Now().UnixMilli()
	if n := len(leader.log.batches); n > 0 {
		timestamp = batch.Header(leader.log.batches[n-1].bytes).MaxTimestamp()
	}
	b := batch.AppendPhantoms(nil, 1, timestamp, []byte(batch.FenceKey))
	h := batch.Header(b)
	h.Patch(batch.Patch{Base: leader.log.end, LeaderEpoch: p.epoch, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
	leader.log.append(storedOf(h))
	c.grown(p)
}
