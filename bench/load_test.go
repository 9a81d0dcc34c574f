package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// load fills a topic that exists. Values differ from record to record, so that a
// batch compresses no better than a single record does: to about a half.
func (s set) load(ctx context.Context, t testing.TB, c *kafkatest.Cluster) {
	t.Helper()
	bytes := s.batch
	if s.codec != "none" {
		bytes *= 2 // the limit is on what goes into the compression
	}
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[s.codec]),
		kgo.ProducerBatchMaxBytes(int32(bytes)), kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(1<<17), kgo.MaxBufferedBytes(64<<20))
	var (
		mu     sync.Mutex
		failed error
	)
	free := sync.Pool{New: func() any { return &kgo.Record{Value: make([]byte, s.value)} }}
	for i := range s.records() {
		r := free.Get().(*kgo.Record)
		*r = kgo.Record{Topic: s.topic(), Partition: int32(i % partitions), Value: r.Value}
		fill(r.Value, uint64(i))
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			free.Put(r)
			if err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	err := cl.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	if err := errors.Join(err, failed); err != nil {
		t.Fatalf("loading topic %s: %v", s.topic(), err)
	}
}

// fill makes the value of record i: of every 32 bytes the first 12 are new, the
// others those of the 32 before, which LZ77 finds.
func fill(value []byte, i uint64) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	seed := (i + 1) * 0x9e3779b97f4a7c15
	var bits [8]byte
	for k := range value {
		if k%32 >= 12 && k >= 32 {
			value[k] = value[k-32]
			continue
		}
		if k%4 == 0 {
			seed ^= seed << 13
			seed ^= seed >> 7
			seed ^= seed << 17
			binary.LittleEndian.PutUint64(bits[:], seed)
		}
		value[k] = letters[bits[k%4*2]&63]
	}
}
