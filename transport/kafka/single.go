package kafka

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// slotSingle is for produce requests outside of any stretch: fences and fillers.
const slotSingle = "single"

// produceEach appends one batch to each partition with acks=all and says where
// they stand. Batches must carry a producer id, so that one that is sent again
// after a lost answer is recognised by the broker.
func (c *Cluster) produceEach(ctx context.Context, partitions []cluster.Partition, batches [][]byte) ([]int64, []error) {
	bases := make([]int64, len(partitions))
	errs := c.atLeaders(ctx, partitions, slotSingle, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		if conn.MaxVersion(produceKey) < produceVersion {
			return errOldBroker
		}
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = acksAll, int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/4).Milliseconds())
		for _, g := range byTopic(partitions, idx) {
			t := kmsg.NewProduceRequestTopic()
			t.Topic = g.topic
			for _, i := range g.idx {
				p := kmsg.NewProduceRequestTopicPartition()
				p.Partition, p.Records = partitions[i].Partition, batches[i]
				t.Partitions = append(t.Partitions, p)
			}
			req.Topics = append(req.Topics, t)
		}
		answer, err := conn.DoVersion(ctx, req, produceVersion)
		if err != nil {
			return err
		}
		want := expect(partitions, idx)
		for _, t := range answer.(*kmsg.ProduceResponse).Topics {
			for _, p := range t.Partitions {
				if i, ok := want.take(t.Topic, p.Partition); ok {
					bases[i], errs[i] = p.BaseOffset, saying(p.ErrorCode, p.ErrorMessage)
				}
			}
		}
		want.missing(errs)
		return nil
	})
	return bases, errs
}
