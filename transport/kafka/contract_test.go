package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/clustermirror/mirror/transport/transporttest"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestContractOnFake is the contract of a source and a destination on a cluster that
// is none.
func TestContractOnFake(t *testing.T) {
	f, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	transporttest.Run(t, transporttest.Options{Open: func(t testing.TB) transporttest.End {
		e := contractEnd(t, f.ListenAddrs())
		e.OldFetch, e.Forgetful = true, true
		e.Elect = func(t testing.TB, p cluster.Partition) {
			next := (f.LeaderFor(p.Topic, p.Partition) + 1) % 3
			if err := f.MoveTopicPartition(p.Topic, p.Partition, next); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}})
}

// TestContractOnReal is the same on three real brokers.
func TestContractOnReal(t *testing.T) {
	k := threeNodes(t, "4.4.0")
	transporttest.Run(t, transporttest.Options{Parallel: true, Timeout: time.Minute, Open: func(t testing.TB) transporttest.End {
		e := contractEnd(t, k.Bootstrap())
		e.CreateTopic = func(t testing.TB, n cluster.NewTopic) {
			configs := map[string]string{}
			for _, c := range n.Configs {
				configs[c.Name] = c.Value
			}
			k.CreateTopic(t, n.Name, n.Partitions, 3, configs)
		}
		e.Elect = func(t testing.TB, p cluster.Partition) { electNext(t, k, p) }
		return e
	}})
}

// contractEnd is a cluster with the hooks that need nothing but its addresses.
func contractEnd(t testing.TB, bootstrap []string) transporttest.End {
	c := open(t, bootstrap)
	return transporttest.End{
		Source: c, Destination: c,
		Another: func(t testing.TB) transporttest.Destination { return open(t, bootstrap) },
		Produce: func(ctx context.Context, p cluster.Partition, batches ...[]byte) error {
			for _, b := range batches {
				err := produceAsIs(ctx, c, p, b)
				for try := 0; moved(err) && sleep(ctx, pause(try)); try++ { // a leader that has just been elected
					err = produceAsIs(ctx, c, p, b)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		Begin: func(t testing.TB, p cluster.Partition) transporttest.Transaction { return begin(t, c, bootstrap, p) },
		Join: func(t testing.TB, group string) func() {
			topic := cluster.NewTopic{Name: "contract-members", Partitions: 1, ReplicationFactor: -1}
			if err := c.CreateTopics(t.Context(), []cluster.NewTopic{topic})[0]; err != nil && !errors.Is(err, cluster.ErrTopicExists) {
				t.Fatal(err)
			}
			return joinGroup(t, bootstrap, group, topic.Name)
		},
	}
}

// produceAsIs is one produce request to the leader, acknowledged by all replicas.
func produceAsIs(ctx context.Context, c *Cluster, p cluster.Partition, b []byte) error {
	leaders, err := c.Leaders(ctx, []cluster.Partition{p}, true)
	if err == nil {
		err = leaders[0].Err
	}
	if err != nil {
		return err
	}
	conn, err := c.client.Conn(ctx, leaders[0].Broker, "contract")
	if err != nil {
		return err
	}
	b = slices.Clone(b)
	batch.Header(b).Patch(batch.Patch{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = p.Topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = p.Partition, b
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := conn.DoVersion(ctx, req, produceVersion)
	if err != nil {
		return err
	}
	return wire.CodeError(answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// electNext makes the next replica of a partition the leader.
func electNext(t testing.TB, k *kafkatest.Cluster, p cluster.Partition) {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &p.Topic
	req.Topics = append(req.Topics, rt)
	meta, err := req.RequestWith(t.Context(), k.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range meta.Topics[0].Partitions {
		if at.Partition == p.Partition {
			i := slices.Index(at.Replicas, at.Leader)
			moveLeader(t.(*testing.T), k, p, slices.Concat(at.Replicas[i+1:], at.Replicas[:i+1]))
		}
	}
}

// joinGroup has a consumer be a member of a group until leave is called.
func joinGroup(t testing.TB, bootstrap []string, group, topic string) (leave func()) {
	t.Helper()
	joined := make(chan struct{}, 100)
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { joined <- struct{}{} }),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	select {
	case <-joined:
	case <-time.After(20 * time.Second):
		t.Fatal(fmt.Errorf("group %s has no member", group))
	}
	return cl.Close
}
