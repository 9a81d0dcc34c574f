package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/mirror/cluster"
)

// writer writes batches as bytes into a cluster.
type writer struct {
	cl *kgo.Client

	mu      sync.Mutex
	leaders map[cluster.Partition]int32
}

// newWriter speaks the protocol of Kafka 3.3 at most, in which clients name the
// partitions of a transaction themselves, and Produce in the version given at most:
// message formats 0 and 1 need 1 and 2.
func newWriter(opts []kgo.Opt, produce int16) (*writer, error) {
	versions := kversion.V3_3_0()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), produce)
	cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), opts...), kgo.MaxVersions(versions))...)
	return &writer{cl: cl, leaders: map[cluster.Partition]int32{}}, err
}

func (w *writer) close() { w.cl.Close() }

// modern is a Produce version for message format 2 that names topics.
const modern = 9

// pace is how long to wait before asking again.
const pace = 20 * time.Millisecond

// until calls f until it gives nil, or what will not go away by itself.
func until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions) && !errors.Is(err, errNotYet) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

var errNotYet = errors.New("not yet")

// leader asks for the broker that leads a partition.
func (w *writer) leader(ctx context.Context, p cluster.Partition) (id int32, err error) {
	err = until(ctx, func() error {
		req := kmsg.NewPtrMetadataRequest()
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = &p.Topic
		req.Topics = append(req.Topics, one)
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
			return err
		}
		for _, one := range resp.Topics[0].Partitions {
			if one.Partition == p.Partition {
				id = one.Leader
				return kerr.ErrorForCode(one.ErrorCode)
			}
		}
		return kerr.UnknownTopicOrPartition
	})
	return id, err
}

// produce appends one batch, or a message set, and gives the offset that it got.
func (w *writer) produce(ctx context.Context, p cluster.Partition, txn *string, records []byte) (base int64, err error) {
	w.mu.Lock()
	id, known := w.leaders[p]
	w.mu.Unlock()
	if !known {
		if id, err = w.leader(ctx, p); err != nil {
			return 0, err
		}
		w.mu.Lock()
		w.leaders[p] = id
		w.mu.Unlock()
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = p.Partition, records
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = p.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = txn, -1, 30_000
	req.Topics = append(req.Topics, topic)
	err = until(ctx, func() error {
		resp, err := w.cl.Broker(int(id)).Request(ctx, req)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		base = got.BaseOffset
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return fmt.Errorf("produce %v: %w %v", p, err, deref(got.ErrorMessage))
		}
		return nil
	})
	return base, err
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// offset asks for one of the special timestamps of ListOffsets.
func (w *writer) offset(ctx context.Context, p cluster.Partition, timestamp int64) (at int64, err error) {
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp = p.Partition, timestamp
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = p.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, topic)
	err = until(ctx, func() error {
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		got := resp.Topics[0].Partitions[0]
		at = got.Offset
		return kerr.ErrorForCode(got.ErrorCode)
	})
	return at, err
}

const (
	latest   = -1
	earliest = -2
)

// reaches waits until the log of a partition has an end: markers come after the answer
// that the transaction has ended.
func (w *writer) reaches(ctx context.Context, p cluster.Partition, timestamp, offset int64) error {
	return until(ctx, func() error {
		at, err := w.offset(ctx, p, timestamp)
		if err == nil && at < offset {
			err = fmt.Errorf("%w: %v stands at %d, wanted %d", errNotYet, p, at, offset)
		}
		return err
	})
}

// create makes a topic.
func (w *writer) create(ctx context.Context, name string, partitions int32, configs map[string]string) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for k, v := range configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = k, kmsg.StringPtr(v)
		topic.Configs = append(topic.Configs, config)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, w.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	for i := range partitions {
		if _, err := w.leader(ctx, cluster.Partition{Topic: name, Partition: i}); err != nil {
			return err
		}
	}
	return nil
}

// alter sets one setting of a topic. The others go back to what the cluster has as a
// default, so all are given: brokers before 2.3 know no other way.
func (w *writer) alter(ctx context.Context, name string, configs map[string]string) error {
	one := kmsg.NewAlterConfigsRequestResource()
	one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, name
	for k, v := range configs {
		config := kmsg.NewAlterConfigsRequestResourceConfig()
		config.Name, config.Value = k, kmsg.StringPtr(v)
		one.Configs = append(one.Configs, config)
	}
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources = append(req.Resources, one)
	resp, err := req.RequestWith(ctx, w.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("alter %s: %w", name, err)
	}
	return nil
}

// trim deletes the records before an offset.
func (w *writer) trim(ctx context.Context, p cluster.Partition, to int64) error {
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Partition, part.Offset = p.Partition, to
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = p.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = append(req.Topics, topic)
	return until(ctx, func() error {
		resp, err := req.RequestWith(ctx, w.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
}
