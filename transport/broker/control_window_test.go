package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestOpenForOneRequest: others of ours are made replicas while nobody is cordoned, which
// lasts for that request alone. None of the others sends a heartbeat itself here.
func TestOpenForOneRequest(t *testing.T) {
	f := startFake(t, 1)
	f.Offer(45, 0)
	refused := 0
	f.Handle(func(controller int, req kmsg.Request) kmsg.Response {
		assign, ok := req.(*kmsg.AlterPartitionAssignmentsRequest)
		if !ok {
			return f.answer(controller, req)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		topic := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		topic.Topic = assign.Topics[0].Topic
		part := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
		part.Partition = assign.Topics[0].Partitions[0].Partition
		to := assign.Topics[0].Partitions[0].Replicas
		// ReplicationControlManager.validateManualPartitionAssignment
		if slices.ContainsFunc(to, func(id int32) bool { return id >= 100 && len(f.brokers[id].Cordoned) > 0 }) {
			part.ErrorCode = 39
			refused++
		} else {
			f.Append(metalog.ChangePartition{ID: strayID, Replicas: to})
		}
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp
	})
	m, _ := joinFake(t, f, func(c *Config) {
		c.IDs, c.Ours = IDs{100, 102}, func(string, cluster.TopicID, int32) bool { return true }
		c.HeartbeatInterval, c.SessionTimeout = time.Hour, 6*time.Hour
	})
	if err := m.WaitJoined(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	for id := int32(101); id <= 102; id++ {
		b := metalog.Broker{ID: id, Epoch: 70 + int64(id), Directories: []metalog.UUID{{byte(id)}}, Cordoned: []metalog.UUID{{byte(id)}}}
		f.set(func() { f.brokers[id] = &b })
		f.Append(metalog.RegisterBroker{Broker: b})
	}
	f.Append(metalog.NewTopic{Name: "t", ID: strayID.Topic},
		metalog.NewPartition{ID: strayID, Partition: metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100}, Leader: 100}})
	if _, err := m.log.Wait(within(t, 10*time.Second), func(i metalog.Image) bool { _, ok := i.Partition(strayID); return ok }); err != nil {
		t.Fatal(err)
	}
	c := newControl(m, new(MemoryOverrides))
	failed := c.drive(within(t, 10*time.Second), []metalog.PartitionID{strayID}, func(us party, i metalog.Image, id metalog.PartitionID) act {
		return decideAdd(us, i, id, []int32{101, 102})
	})
	if err := failedWith(failed); err != nil {
		t.Fatal(err)
	}
	if p, _ := m.log.Image().Partition(strayID); !slices.Equal(p.Replicas, []int32{100, 101, 102, 1}) {
		t.Errorf("replicas %v", p.Replicas)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := int32(100); id <= 102; id++ {
		if len(f.brokers[id].Cordoned) == 0 {
			t.Errorf("broker %d is open to placement", id)
		}
	}
	if refused > 0 {
		t.Errorf("asked %d times for what was not open", refused)
	}
}
