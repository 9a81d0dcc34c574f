package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// bounds are where a replica's log of a partition begins and ends.
type bounds struct {
	start, end int64
	err        error
}

// askBounds asks for some partitions, and has an answer for each.
type askBounds func(ctx context.Context, names []cluster.Partition) map[cluster.Partition]bounds

// together has the questions to one broker that come while one is on its way asked in one
// request: a process that takes over leads many partitions at the same moment.
type together struct {
	turn chan struct{} // taken by who asks, for all that wait

	mu      sync.Mutex
	waiting []*question
}

type question struct {
	name   cluster.Partition
	done   chan struct{} // closed with the answer
	answer bounds
}

// askers are those of all real brokers. The zero value is ready.
type askers struct {
	mu  sync.Mutex
	all map[int32]*together
}

func (a *askers) of(broker int32) *together {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.all[broker]
	if t == nil {
		if a.all == nil {
			a.all = make(map[int32]*together)
		}
		t = newTogether()
		a.all[broker] = t
	}
	return t
}

func newTogether() *together { return &together{turn: make(chan struct{}, 1)} }

func (t *together) ask(ctx context.Context, name cluster.Partition, send askBounds) bounds {
	q := &question{name: name, done: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, q)
	t.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done(): // who asks next asks for nobody
		return bounds{err: ctx.Err()}
	case t.turn <- struct{}{}:
		t.sendAll(ctx, send)
		<-t.turn
	}
	return q.answer
}

// sendAll asks for all that wait. It needs the turn. A question that does not wait any more was
// answered by who had the turn before.
func (t *together) sendAll(ctx context.Context, send askBounds) {
	t.mu.Lock()
	all := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	names, seen := make([]cluster.Partition, 0, len(all)), make(map[cluster.Partition]struct{}, len(all))
	for _, q := range all {
		if _, twice := seen[q.name]; !twice {
			seen[q.name] = struct{}{}
			names = append(names, q.name)
		}
	}
	if len(names) == 0 {
		return
	}
	answers := send(ctx, names)
	for _, q := range all {
		q.answer = answers[q.name]
		close(q.done)
	}
}

// ends asks a replica where its log begins and ends: the debugging consumer (replica
// id -2) may ask those that do not lead, and is told the log end.
func (d *Destination) ends(ctx context.Context, replica int32, name cluster.Partition) (start, end int64, err error) {
	b := d.bounds.of(replica).ask(ctx, name, func(ctx context.Context, names []cluster.Partition) map[cluster.Partition]bounds {
		return d.boundsOf(ctx, replica, names)
	})
	return b.start, b.end, b.err
}

func (d *Destination) boundsOf(ctx context.Context, replica int32, names []cluster.Partition) map[cluster.Partition]bounds {
	out := make(map[cluster.Partition]bounds, len(names))
	conn, err := d.m.brokers.Conn(ctx, replica, "scan")
	if err != nil {
		for _, name := range names {
			out[name] = bounds{err: err}
		}
		return out
	}
	const earliest, latest = -2, -1
	var starts map[cluster.Partition]offsetOf
	var asking sync.WaitGroup
	asking.Go(func() { starts = listOffsets(ctx, conn, names, earliest) })
	ends := listOffsets(ctx, conn, names, latest)
	asking.Wait()
	for _, name := range names {
		b := bounds{start: starts[name].at, end: ends[name].at, err: starts[name].err}
		if b.err == nil {
			b.err = ends[name].err
		}
		out[name] = b
	}
	return out
}

type offsetOf struct {
	at  int64
	err error
}

// listOffsets asks one broker, and has an answer for each partition.
func listOffsets(ctx context.Context, conn *wire.Conn, names []cluster.Partition, timestamp int64) map[cluster.Partition]offsetOf {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -2
	topics := make(map[string]int)
	out := make(map[cluster.Partition]offsetOf, len(names))
	for _, name := range names {
		at, ok := topics[name.Topic]
		if !ok {
			at = len(req.Topics)
			topics[name.Topic] = at
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = name.Topic
			req.Topics = append(req.Topics, topic)
		}
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = name.Partition, timestamp, -1
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, part)
		out[name] = offsetOf{err: errNothing}
	}
	resp, err := conn.Do(ctx, req)
	if err != nil {
		for name := range out {
			out[name] = offsetOf{err: err}
		}
		return out
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			out[cluster.Partition{Topic: t.Topic, Partition: p.Partition}] = offsetOf{p.Offset, wire.CodeError(p.ErrorCode)}
		}
	}
	return out
}
