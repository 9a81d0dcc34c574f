package kafka

import (
	"context"
	"time"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// batchBytes is how much goes into one batch, before compression; brokers take a
	// megabyte by default.
	batchBytes = 512 << 10
	// roundBytes is how much goes into all batches of one round.
	roundBytes   = 16 << 20
	recordExtra  = 32 // bytes around a record's key and value, at most
	compressFrom = 1 << 10
)

// pile is a batch in the making for one partition.
type pile struct {
	part    int32
	cuts    int // of the partition when the pile was made
	records []batch.Record
	bytes   int
	wants   []*want // whose tries are in it
	base    int64   // where it was appended
}

func (p *pile) add(key string, value []byte) {
	p.records = append(p.records, batch.Record{Key: []byte(key), Value: value})
	p.bytes += len(key) + len(value) + recordExtra
}

// next is the offset after the pile, once it was appended.
func (p *pile) next() int64 { return p.base + int64(len(p.records)) }

func (p *pile) encode() []byte {
	now := time.Now().UnixMilli()
	for i := range p.records {
		p.records[i].Timestamp = now
	}
	spec := batch.Spec{LeaderEpoch: -1, Records: p.records}
	if p.bytes >= compressFrom {
		spec.Codec = batch.LZ4
	}
	return batch.Encode(spec)
}

// produce appends piles, one a partition, with acks=all, once. A pile without an error
// is appended at its base; of one with an error it is not known.
func (t *tail) produce(ctx context.Context, piles map[int32]*pile, fresh bool) map[int32]error {
	parts := make([]int32, 0, len(piles))
	for n := range piles {
		parts = append(parts, n)
	}
	return t.ask(ctx, parts, slotProduce, fresh, func(ctx context.Context, conn *wire.Conn, parts []int32, errs map[int32]error) error {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, t.s.timeoutMillis()
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = t.topic
		for _, n := range parts {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = n, piles[n].encode()
			topic.Partitions = append(topic.Partitions, p)
			errs[n] = errMissing
		}
		req.Topics = append(req.Topics, topic)
		answer, err := conn.DoVersion(ctx, req, min(byNameProduce, conn.MaxVersion(req.Key())))
		if err != nil {
			return err
		}
		for _, topic := range answer.(*kmsg.ProduceResponse).Topics {
			for _, p := range topic.Partitions {
				if pile := piles[p.Partition]; pile != nil && topic.Topic == t.topic {
					pile.base, errs[p.Partition] = p.BaseOffset, saying(p.ErrorCode, p.ErrorMessage)
				}
			}
		}
		return nil
	})
}

// byNameProduce is the newest produce version that names topics.
const byNameProduce = 12
