package broker

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// The timestamps of ListOffsets that stand for something else.
const (
	askLatest        = -1
	askEarliest      = -2
	askMaxTimestamp  = -3
	askEarliestLocal = -4
)

// debugReplica is the replica id whose questions followers answer as well
// (ListOffsetsRequest.DEBUGGING_REPLICA_ID). They know no isolation level then.
const debugReplica = -2

// listOffsets answers for what we lead: the ends from what we know, times from a
// follower.
func (c *client) listOffsets(ctx context.Context, h header, b []byte) error {
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrListOffsetsResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	open := make(map[cluster.Partition]*kmsg.ListOffsetsResponseTopicPartition)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if absent(t.Partitions[j].ErrorCode) {
				open[cluster.Partition{Topic: t.Topic, Partition: t.Partitions[j].Partition}] = &t.Partitions[j]
			}
		}
	}
	c.server.settled(ctx, slices.Collect(maps.Keys(open)))
	maps.DeleteFunc(open, func(name cluster.Partition, _ *kmsg.ListOffsetsResponseTopicPartition) bool {
		return c.server.led.byName(name) == nil
	})
	if len(open) == 0 {
		return c.relay(answer.bytes)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return err
	}
	times := c.server.led.list(req, open)
	req.Topics = nil
	decoded()
	if len(times) > 0 {
		if err := c.listTimes(ctx, h, req, times); err != nil {
			return err
		}
	}
	return c.reply(h, resp, h.version)
}

// list answers what leaders know, and gives what has to be looked up in a log.
func (r *registry) list(req *kmsg.ListOffsetsRequest, open map[cluster.Partition]*kmsg.ListOffsetsResponseTopicPartition) map[cluster.Partition]timed {
	times := make(map[cluster.Partition]timed)
	for _, t := range req.Topics {
		for _, q := range t.Partitions {
			name := cluster.Partition{Topic: t.Topic, Partition: q.Partition}
			led, p := r.byName(name), open[name]
			if led == nil || p == nil {
				continue
			}
			if s := led.State(); !listed(p, q, req.IsolationLevel, s) {
				times[name] = timed{q, p, s}
			}
		}
	}
	return times
}

// listed answers what a leader knows of itself; false is for what has to be looked
// up in the log. It is pure.
func listed(p *kmsg.ListOffsetsResponseTopicPartition, q kmsg.ListOffsetsRequestTopicPartition, isolation int8, s lead.State) bool {
	if s.Phase != lead.Leading {
		p.ErrorCode = int16(codeNotLeader)
		return true
	}
	if code := epochCode(q.CurrentLeaderEpoch, s.Epoch); code != 0 {
		p.ErrorCode = code
		return true
	}
	switch {
	case q.Timestamp >= 0 || q.Timestamp == askMaxTimestamp:
		return false
	case q.Timestamp == askLatest:
		found(p, -1, readable(s, isolation), s.Epoch)
	case q.Timestamp == askEarliest || q.Timestamp == askEarliestLocal:
		found(p, -1, s.LogStart, s.Epoch)
	default: // offsets in remote storage: there are none
		found(p, -1, -1, -1)
	}
	return true
}

// readable is the first offset that a consumer of an isolation level cannot read.
func readable(s lead.State, isolation int8) int64 {
	if isolation == 1 {
		return min(s.LastStable, s.HighWatermark)
	}
	return s.HighWatermark
}

func found(p *kmsg.ListOffsetsResponseTopicPartition, timestamp, offset int64, epoch int32) {
	p.ErrorCode, p.Timestamp, p.Offset, p.LeaderEpoch = 0, timestamp, offset, epoch
	if p.OldStyleOffsets = []int64{offset}; offset < 0 { // version 0 has a list
		p.OldStyleOffsets = nil
	}
}

// timed is a question for a time, where its answer belongs, and how the partition
// stands.
type timed struct {
	question kmsg.ListOffsetsRequestTopicPartition
	answer   *kmsg.ListOffsetsResponseTopicPartition
	state    lead.State
}

// listTimes has the real broker look into its replicas, and where it has none,
// another one. What nobody can say is to be asked again.
func (c *client) listTimes(ctx context.Context, h header, from *kmsg.ListOffsetsRequest, times map[cluster.Partition]timed) error {
	req := timesRequest(from, times)
	resp := kmsg.NewPtrListOffsetsResponse()
	release, err := c.ask(ctx, h, req, resp)
	if err != nil {
		return err
	}
	takeTimes(resp, from.IsolationLevel, times)
	release()
	for broker, some := range byHolder(times) {
		resp, err := c.askFollower(ctx, broker, timesRequest(from, some))
		if err != nil {
			c.server.cfg.Logger.Debug("a follower cannot be asked for offsets", "broker", broker, "error", err)
			continue
		}
		takeTimes(resp.(*kmsg.ListOffsetsResponse), from.IsolationLevel, some)
	}
	return nil
}

// byHolder groups what is not answered yet by a follower that has the partition.
func byHolder(times map[cluster.Partition]timed) map[int32]map[cluster.Partition]timed {
	out := make(map[int32]map[cluster.Partition]timed)
	for name, t := range times {
		if !absent(t.answer.ErrorCode) {
			continue
		}
		if ids := holders(t.state, t.state.HighWatermark); len(ids) > 0 {
			if out[ids[0]] == nil {
				out[ids[0]] = make(map[cluster.Partition]timed)
			}
			out[ids[0]][name] = t
		}
	}
	return out
}

func timesRequest(from *kmsg.ListOffsetsRequest, times map[cluster.Partition]timed) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.TimeoutMillis = from.Version, debugReplica, from.TimeoutMillis
	for name, t := range times {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name.Topic
		q := t.question
		q.CurrentLeaderEpoch = -1 // ours was compared already
		topic.Partitions = append(topic.Partitions, q)
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// takeTimes takes what was found. A follower looks through its whole log: what
// consumers cannot read yet is not there for them.
func takeTimes(resp *kmsg.ListOffsetsResponse, isolation int8, times map[cluster.Partition]timed) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			to, ok := times[cluster.Partition{Topic: t.Topic, Partition: p.Partition}]
			if !ok {
				continue
			}
			end := readable(to.state, isolation)
			if resp.Version == 0 && len(p.OldStyleOffsets) > 0 {
				p.Offset = p.OldStyleOffsets[0]
			}
			switch {
			case p.ErrorCode != 0: // to be asked again
			case p.Offset < 0 || p.Offset >= end:
				found(to.answer, -1, -1, -1)
			default:
				found(to.answer, p.Timestamp, p.Offset, p.LeaderEpoch)
			}
		}
	}
}

// epochEnds answers OffsetForLeaderEpoch for what we lead.
func (c *client) epochEnds(ctx context.Context, h header, b []byte) error {
	answer, err := c.consult(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	if err := readAnswerBody(answer.bytes, h.version, resp); err != nil {
		return err
	}
	open := make(map[cluster.Partition]*kmsg.OffsetForLeaderEpochResponseTopicPartition)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if absent(t.Partitions[j].ErrorCode) {
				open[cluster.Partition{Topic: t.Topic, Partition: t.Partitions[j].Partition}] = &t.Partitions[j]
			}
		}
	}
	c.server.settled(ctx, slices.Collect(maps.Keys(open)))
	maps.DeleteFunc(open, func(name cluster.Partition, _ *kmsg.OffsetForLeaderEpochResponseTopicPartition) bool {
		return c.server.led.byName(name) == nil
	})
	if len(open) == 0 {
		return c.relay(answer.bytes)
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return err
	}
	for _, t := range req.Topics {
		for _, q := range t.Partitions {
			name := cluster.Partition{Topic: t.Topic, Partition: q.Partition}
			if led, p := c.server.led.byName(name), open[name]; led != nil && p != nil {
				epochEnd(p, q, led.State(), led.EpochEnd)
			}
		}
	}
	decoded()
	return c.reply(h, resp, h.version)
}

// epochEnd is a leader's answer for one partition. Before its log is known it has
// none: what it said too early would have consumers skip records.
func epochEnd(p *kmsg.OffsetForLeaderEpochResponseTopicPartition, q kmsg.OffsetForLeaderEpochRequestTopicPartition, s lead.State, end func(int32) cluster.EpochEnd) {
	p.LeaderEpoch, p.EndOffset = -1, -1
	if s.Phase != lead.Leading {
		p.ErrorCode = int16(codeNotLeader)
		return
	}
	if p.ErrorCode = epochCode(q.CurrentLeaderEpoch, s.Epoch); p.ErrorCode != 0 {
		return
	}
	e := end(q.LeaderEpoch)
	p.LeaderEpoch, p.EndOffset = e.Epoch, e.EndOffset
}
