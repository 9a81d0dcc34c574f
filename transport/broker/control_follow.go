package broker

import (
	"context"
	"fmt"
	"slices"
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
// a replica is in sync when it asks for what the leader has not got yet.
func (c *control) follow(ctx context.Context, ids []metalog.PartitionID) {
	var running sync.WaitGroup
	defer running.Wait()
	at := make(map[int32]bool) // leaders that are asked already
	for image := c.m.log.Image(); ctx.Err() == nil; {
		us := c.m.party()
		for _, id := range ids {
			p, ok := image.Partition(id)
			if !ok || p.Leader < 0 || us.own(p.Leader) || at[p.Leader] {
				continue
			}
			at[p.Leader] = true
			f := &follower{c: c, leader: p.Leader, ids: ids, next: make(map[metalog.PartitionID]int64)}
			running.Go(func() { f.run(ctx) })
		}
		image, _, _ = c.m.log.Next(ctx, image.Version)
	}
}

// follower fetches from one leader; only its goroutine uses it.
type follower struct {
	c      *control
	leader int32
	ids    []metalog.PartitionID
	next   map[metalog.PartitionID]int64 // the offset to ask for
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
		whole, err := f.turn(ctx, image, mine)
		if err != nil && ctx.Err() == nil {
			f.c.m.logger.Debug("fetching as a replica", "leader", f.leader, "error", err)
		}
		if !whole {
			bounded, cancel := context.WithTimeout(ctx, followPause)
			_, _, _ = f.c.m.log.Next(bounded, image.Version)
			cancel()
		}
	}
}

// turn is one fetch; whole says that all partitions were answered.
func (f *follower) turn(ctx context.Context, image metalog.Image, mine []metalog.PartitionID) (whole bool, err error) {
	conn, err := f.c.m.brokers.Conn(ctx, f.leader, "follow")
	if err != nil {
		return false, err
	}
	if err := f.ends(ctx, conn, image, mine); err != nil {
		return false, err
	}
	req := f.request(image, mine)
	resp, err := conn.DoVersion(ctx, req, min(followVersion, conn.MaxVersion(req.Key())))
	if err != nil {
		return false, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return false, err
	}
	whole = !slices.ContainsFunc(mine, func(id metalog.PartitionID) bool { _, ok := f.next[id]; return !ok })
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			id := metalog.PartitionID{Topic: topic.TopicID, Partition: p.Partition}
			if code := wire.CodeError(p.ErrorCode); code != nil || p.DivergingEpoch.EndOffset >= 0 {
				delete(f.next, id)
				whole, err = false, fmt.Errorf("%s-%d: %w", topicName(image, id), id.Partition, orDiverging(code))
				continue
			}
			f.pass(id, p.RecordBatches)
		}
	}
	return whole, err
}

func orDiverging(err error) error {
	if err == nil {
		return fmt.Errorf("the leader's log has another epoch here")
	}
	return err
}

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
func (f *follower) ends(ctx context.Context, conn *wire.Conn, image metalog.Image, mine []metalog.PartitionID) error {
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
			if p.ErrorCode == 0 {
				f.next[find(topic.Topic, p.Partition)] = p.Offset
			}
		}
	}
	return nil
}
