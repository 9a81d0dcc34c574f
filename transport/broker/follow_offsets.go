package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// The times of ListOffsets that mean a place in the log.
const (
	latestOffset   = -1
	earliestOffset = -2
	earliestLocal  = -4 // KIP-405: what is not in a tier
	latestTiered   = -5 // KIP-1005
)

const codeInvalidRequest = int16(42)

// ready is the state of a partition that we lead, or the code that says why there is
// none to go by. A follower has to be of our epoch.
func (s *Server) ready(p *lead.Partition, epoch int32) (lead.State, int16) {
	if p == nil {
		return lead.State{}, lead.NotLeader
	}
	state := p.State()
	switch {
	case state.Phase != lead.Leading:
		return state, lead.NotLeader
	case epoch >= 0 && epoch < state.Epoch:
		return state, lead.FencedLeaderEpoch
	case epoch > state.Epoch:
		return state, lead.UnknownLeaderEpoch
	}
	return state, 0
}

// listOffsets answers a follower that is out of range: where the log begins and ends.
func (s *Server) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for i := range req.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			one := kmsg.NewListOffsetsResponseTopicPartition()
			one.Partition = p.Partition
			state, code := s.ready(s.led.byName(cluster.Partition{Topic: topic.Topic, Partition: p.Partition}), p.CurrentLeaderEpoch)
			switch one.ErrorCode = code; {
			case code != 0:
			case p.Timestamp == latestOffset:
				one.Offset, one.LeaderEpoch = state.Next, state.Epoch
			case p.Timestamp == earliestOffset || p.Timestamp == earliestLocal:
				one.Offset, one.LeaderEpoch = state.LogStart, state.Epoch
			case p.Timestamp == latestTiered: // we have no tiers
			default: // no follower asks by time
				one.ErrorCode = codeInvalidRequest
			}
			topic.Partitions = append(topic.Partitions, one)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// epochEnds answers where epochs end.
func (s *Server) epochEnds(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range req.Topics {
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			one := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			one.Partition = p.Partition
			led := s.led.byName(cluster.Partition{Topic: topic.Topic, Partition: p.Partition})
			if _, one.ErrorCode = s.ready(led, p.CurrentLeaderEpoch); one.ErrorCode == 0 {
				end := led.EpochEnd(p.LeaderEpoch)
				one.LeaderEpoch, one.EndOffset = end.Epoch, end.EndOffset
			}
			topic.Partitions = append(topic.Partitions, one)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
