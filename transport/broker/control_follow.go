package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

const (
	// followVersion is the last version of Fetch in which the high watermark is not
	// asked for (KIP-1166), which is of no use here.
	followVersion = 17
	followWait    = 100 * time.Millisecond
	followBytes   = 1 << 20
	// followPause is between two tries after an error.
	followPause = 20 * time.Millisecond
)

// follow fetches partitions as a replica does, until ctx ends, and keeps nothing:
// a replica is in sync when it asks for what the leader has not got yet. It gives
// what was wrong with partitions when they were asked for last.
func (c *control) follow(ctx context.Context, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	var running sync.WaitGroup
	at := make(map[int32]*follower) // by leader
	for image := c.m.log.Image(); ctx.Err() == nil; {
		us := c.m.party()
		for _, id := range ids {
			p, ok := image.Partition(id)
			if !ok || p.Leader < 0 || us.own(p.Leader) || at[p.Leader] != nil {
				continue
			}
			f := &follower{c: c, leader: p.Leader, ids: ids, next: make(map[metalog.PartitionID]int64), wrong: make(map[metalog.PartitionID]error)}
			at[p.Leader] = f
			running.Go(func() { f.run(ctx) })
		}
		image, _, _ = c.m.log.Next(ctx, image.Version)
	}
	running.Wait()
	wrong := make(map[metalog.PartitionID]error)
	for _, f := range at {
		maps.Copy(wrong, f.wrong)
	}
	return wrong
}

// follower fetches from one leader; only its goroutine uses it.
type follower struct {
	c      *control
	leader int32
	ids    []metalog.PartitionID
	next   map[metalog.PartitionID]int64 // the offset to ask for
	wrong  map[metalog.PartitionID]error // of the last turn
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		image := f.c.m.log.Image()
		var mine []metalog.PartitionID
		for _, id := range f.ids {
			if p, ok := image.Partition(id); ok && p.Leader == f.leader {
				mine = append(mine, id)
			}
		}
		if len(mine) == 0 {
			_, _, _ = f.c.m.log.Next(ctx, image.Version)
			continue
		}
		err := f.turn(ctx, image, mine)
		for _, id := range mine {
			if err != nil && ctx.Err() == nil {
				f.wrong[id] = fmt.Errorf("fetching from broker %d as a replica: %w", f.leader, err)
			}
		}
		if err != nil || len(f.wrong) > 0 {
			bounded, cancel := context.WithTimeout(ctx, followPause)
			_, _, _ = f.c.m.log.Next(bounded, image.Version)
			cancel()
		}
	}
}

// turn is one fetch. The error is of all partitions.
func (f *follower) turn(ctx context.Context, image metalog.Image, mine []metalog.PartitionID) error {
	conn, err := f.c.m.brokers.Conn(ctx, f.leader, "follow")
	if err != nil {
		return err
	}
	wrong := make(map[metalog.PartitionID]error)
	if err := f.ends(ctx, conn, image, mine, wrong); err != nil {
		return err
	}
	req := f.request(image, mine)
	resp, err := conn.DoVersion(ctx, req, min(followVersion, conn.MaxVersion(req.Key())))
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return err
	}
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			id := metalog.PartitionID{Topic: topic.TopicID, Partition: p.Partition}
			switch err := wire.CodeError(p.ErrorCode); {
			case err != nil:
				wrong[id] = err
			case p.DivergingEpoch.EndOffset >= 0:
				wrong[id] = errDiverging
			default:
				f.pass(id, p.RecordBatches)
				continue
			}
			delete(f.next, id)
		}
	}
	clear(f.wrong)
	for id, err := range wrong {
		f.wrong[id] = fmt.Errorf("fetching from broker %d as a replica: %w", f.leader, err)
	}
	return nil
}

// errDiverging: we name no epoch of a record, so no leader should say it.
var errDiverging = errors.New("the leader's log has another epoch there")

// pass goes on behind the batches. Where not one is whole the end is asked for
// again.
func (f *follower) pass(id metalog.PartitionID, records []byte) {
	if len(records) == 0 {
		return
	}
	moved := false
	for w := batch.Walk(records); w.Next(); {
		h := w.Header()
		f.next[id], moved = h.Base()+1, true // of an old message, which has no more
		if h.Magic() == 2 {
			f.next[id] = h.Next()
		}
	}
	if !moved {
		delete(f.next, id)
	}
}

func (f *follower) request(image metalog.Image, mine []metalog.PartitionID) *kmsg.FetchRequest {
	us, req := f.c.m.party(), kmsg.NewPtrFetchRequest()
	req.ReplicaState.ID, req.ReplicaState.Epoch = us.Broker, us.Epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(followWait.Milliseconds()), 1, 8*followBytes, -1
	grouped(mine, func(id metalog.PartitionID) {
		topic := kmsg.NewFetchRequestTopic()
		topic.TopicID = id.Topic
		req.Topics = append(req.Topics, topic)
	}, func(id metalog.PartitionID) {
		offset, ok := f.next[id]
		p, there := image.Partition(id)
		if !ok || !there {
			return
		}
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = id.Partition, offset, followBytes
		part.CurrentLeaderEpoch, part.LastFetchedEpoch, part.ReplicaDirectoryID = p.LeaderEpoch, -1, us.dir
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, part)
	})
	return req
}

// ends asks for the log ends of those of which no offset is known. The debugging
// consumer (replica id -2) is told the log end instead of the high watermark.
func (f *follower) ends(ctx context.Context, conn *wire.Conn, image metalog.Image, mine []metalog.PartitionID, wrong map[metalog.PartitionID]error) error {
	var unknown []metalog.PartitionID
	for _, id := range mine {
		if _, ok := f.next[id]; !ok {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -2
	grouped(unknown, func(id metalog.PartitionID) {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = topicName(image, id)
		req.Topics = append(req.Topics, topic)
	}, func(id metalog.PartitionID) {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = id.Partition, -1, -1
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, part)
	})
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	find := names(image, unknown)
	for _, topic := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range topic.Partitions {
			id := find(topic.Topic, p.Partition)
			if err := wire.CodeError(p.ErrorCode); err != nil {
				wrong[id] = fmt.Errorf("ListOffsets: %w", err)
				continue
			}
			f.next[id] = p.Offset
		}
	}
	return nil
}
