package broker

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// codeNewLeader is NEW_LEADER_ELECTED: the in-sync set was changed, which ended a
// reassignment and with it our leadership. Whoever asks for that wants it.
const codeNewLeader = wire.Code(108)

// refused is why the controller did not do something for a partition. One that is
// not in it was not refused; what became of it shows in the metadata log.
type refused map[metalog.PartitionID]error

func (r refused) note(id metalog.PartitionID, code int16) {
	if err := wire.CodeError(code); err != nil && code != int16(codeNewLeader) {
		r[id] = err
	}
}

// join is all of it as one error.
func (r refused) join() error { return errors.Join(slices.Collect(maps.Values(r))...) }

// byTopic groups partitions, the urgent ones first.
func byTopic[V any](i metalog.Image, set map[metalog.PartitionID]V) (ids []metalog.PartitionID) {
	ids = slices.Collect(maps.Keys(set))
	urgent(i, ids)
	return ids
}

// grouped builds the topics of a request: begin starts one, add adds a partition
// to the last.
func grouped(ids []metalog.PartitionID, begin, add func(metalog.PartitionID)) {
	for n, id := range ids {
		if n == 0 || ids[n-1].Topic != id.Topic {
			begin(id)
		}
		add(id)
	}
}

// names finds topics again in answers that have names only.
func names(i metalog.Image, ids []metalog.PartitionID) func(topic string, partition int32) metalog.PartitionID {
	known := make(map[string]metalog.PartitionID)
	for _, id := range ids {
		known[topicName(i, id)] = id
	}
	return func(topic string, partition int32) metalog.PartitionID {
		return metalog.PartitionID{Topic: known[topic].Topic, Partition: partition}
	}
}

// assign asks for new replicas (AlterPartitionReassignments), the preferred leader
// first. Nil calls off what is under way.
func assign(ctx context.Context, c *controller, i metalog.Image, set map[metalog.PartitionID][]int32) (refused, error) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 5000
	ids := byTopic(i, set)
	grouped(ids, func(id metalog.PartitionID) {
		topic := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		topic.Topic = topicName(i, id)
		req.Topics = append(req.Topics, topic)
	}, func(id metalog.PartitionID) {
		part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		part.Partition, part.Replicas = id.Partition, set[id]
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, part)
	})
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, out, find := resp.(*kmsg.AlterPartitionAssignmentsResponse), make(refused), names(i, ids)
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			out.note(find(topic.Topic, p.Partition), p.ErrorCode)
		}
	}
	return out, wire.CodeError(answer.ErrorCode)
}

// inSync changes in-sync sets as their leader (AlterPartition).
func inSync(ctx context.Context, c *controller, i metalog.Image, self Self, set map[metalog.PartitionID][]int32) (refused, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = self.Broker, self.Epoch
	grouped(byTopic(i, set), func(id metalog.PartitionID) {
		topic := kmsg.NewAlterPartitionRequestTopic()
		topic.TopicID = id.Topic
		req.Topics = append(req.Topics, topic)
	}, func(id metalog.PartitionID) {
		part := kmsg.NewAlterPartitionRequestTopicPartition()
		part.Partition = id.Partition
		if p, ok := i.Partition(id); ok {
			part.LeaderEpoch, part.PartitionEpoch = p.LeaderEpoch, p.PartitionEpoch
		}
		for _, r := range set[id] {
			one := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			one.BrokerID = r
			if b, ok := i.Broker(r); ok {
				one.BrokerEpoch = b.Epoch
			}
			part.NewEpochISR = append(part.NewEpochISR, one)
		}
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, part)
	})
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, out := resp.(*kmsg.AlterPartitionResponse), make(refused)
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			out.note(metalog.PartitionID{Topic: topic.TopidID, Partition: p.Partition}, p.ErrorCode)
		}
	}
	return out, wire.CodeError(answer.ErrorCode)
}

// elect asks for the preferred leader (ElectLeaders), so many times in one
// request: every election of a partition without a leader adds one to its epoch,
// and the controller decides on all of them before it carries out the first.
func elect(ctx context.Context, c *controller, i metalog.Image, set map[metalog.PartitionID]int) (refused, error) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = 5000
	ids := byTopic(i, set)
	grouped(ids, func(id metalog.PartitionID) {
		topic := kmsg.NewElectLeadersRequestTopic()
		topic.Topic = topicName(i, id)
		req.Topics = append(req.Topics, topic)
	}, func(id metalog.PartitionID) {
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, slices.Repeat([]int32{id.Partition}, set[id])...)
	})
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, out, find := resp.(*kmsg.ElectLeadersResponse), make(refused), names(i, ids)
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			out.note(find(topic.Topic, p.Partition), p.ErrorCode)
		}
	}
	return out, wire.CodeError(answer.ErrorCode)
}

// lost is the directory of replicas whose disk is gone (DirectoryId.LOST).
var lost = metalog.UUID{15: 2}

// directories says where our replicas lie (AssignReplicasToDirs). A replica in a
// directory that is lost leads nothing and is in no in-sync set.
func directories(ctx context.Context, c *controller, i metalog.Image, self Self, set map[metalog.PartitionID]metalog.UUID) (refused, error) {
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = self.Broker, self.Epoch
	byDir := make(map[metalog.UUID][]metalog.PartitionID)
	for _, id := range byTopic(i, set) {
		byDir[set[id]] = append(byDir[set[id]], id)
	}
	for dir, ids := range byDir {
		d := kmsg.NewAssignReplicasToDirsRequestDirectory()
		d.ID = dir
		grouped(ids, func(id metalog.PartitionID) {
			topic := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
			topic.TopicID = id.Topic
			d.Topics = append(d.Topics, topic)
		}, func(id metalog.PartitionID) {
			part := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
			part.Partition = id.Partition
			last := &d.Topics[len(d.Topics)-1]
			last.Partitions = append(last.Partitions, part)
		})
		req.Directories = append(req.Directories, d)
	}
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, out := resp.(*kmsg.AssignReplicasToDirsResponse), make(refused)
	for _, d := range answer.Directories {
		for _, topic := range d.Topics {
			for _, p := range topic.Partitions {
				out.note(metalog.PartitionID{Topic: topic.TopicID, Partition: p.Partition}, p.ErrorCode)
			}
		}
	}
	return out, wire.CodeError(answer.ErrorCode)
}
