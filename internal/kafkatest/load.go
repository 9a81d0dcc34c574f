package kafkatest

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// LoadSpec describes records to produce. Record i (from 0) goes to partition
// i mod Partitions; its content depends only on i and the spec.
type LoadSpec struct {
	Topic      string
	Partitions int32 // Default: 1.
	// Records is the number over all partitions.
	Records int
	// First is the i of the first record, to go on where a load ended.
	First int
	// ValueSize is in bytes; values are printable and compress to about a
	// half. Default: 100.
	ValueSize int
	// Codecs are taken in turn by the partitions. Default: none, uncompressed.
	Codecs []kgo.CompressionCodec
	// Mixed takes the codecs in turn inside every partition instead, eight
	// stretches of records in all.
	Mixed bool
	// Idempotent uses a producer id.
	Idempotent bool
	// Keys are numbers below 1000 in text; without, keys are null.
	Keys bool
	// Headers gives each record three: a number, an empty and a null one.
	Headers bool
	// Nulls makes some values null and some empty, and the same for keys.
	Nulls bool
	// Timestamps gives the time of record i. Default: now.
	Timestamps func(i int) time.Time
	// BatchBytes is the most in a batch. Default: 1,000,000.
	BatchBytes int32
}

// Load produces the records with acks=all and returns when all have been
// acknowledged; any failure fails the test. Order within a partition is that
// of i.
func (c *Cluster) Load(ctx context.Context, t testing.TB, s LoadSpec) {
	t.Helper()
	s.Partitions = cmp.Or(s.Partitions, 1)
	s.ValueSize = cmp.Or(s.ValueSize, 100)
	s.BatchBytes = cmp.Or(s.BatchBytes, 1_000_000)
	if len(s.Codecs) == 0 {
		s.Codecs = []kgo.CompressionCodec{kgo.NoCompression()}
	}
	l := &loader{spec: s, text: loadText(s.ValueSize)}
	l.slots.New = func() any { return &slot{value: make([]byte, s.ValueSize)} }
	for _, codec := range s.Codecs {
		cl, err := kgo.NewClient(append(c.ClientOpts(), l.opts(codec)...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		l.clients = append(l.clients, cl)
	}
	if err := l.run(ctx); err != nil {
		t.Fatalf("loading topic %s: %v", s.Topic, err)
	}
}

type loader struct {
	spec    LoadSpec
	text    []byte
	clients []*kgo.Client // by codec
	slots   sync.Pool     // of *slot

	mu  sync.Mutex
	err error // of the first record that failed
}

// slot is a record with its memory, used again once it is acknowledged.
type slot struct {
	record  kgo.Record
	value   []byte
	key     [20]byte
	header  [20]byte
	headers [3]kgo.RecordHeader
}

func (l *loader) opts(codec kgo.CompressionCodec) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(l.spec.BatchBytes),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(1 << 16),
		kgo.MaxBufferedBytes(64 << 20),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !l.spec.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	return opts
}

func (l *loader) run(ctx context.Context) error {
	const stretches = 8
	for k := range stretches {
		from, to := l.spec.Records*k/stretches, l.spec.Records*(k+1)/stretches
		for i := from; i < to; i++ {
			partition := int32((l.spec.First + i) % int(l.spec.Partitions))
			turn := int(partition)
			if l.spec.Mixed {
				turn = k
			}
			l.produce(ctx, l.clients[turn%len(l.clients)], l.spec.First+i, partition)
		}
		if !l.spec.Mixed && k < stretches-1 {
			continue
		}
		// The next stretch uses another client: this one's records come first.
		for _, cl := range l.clients {
			if err := cl.Flush(ctx); err != nil {
				return err
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *loader) produce(ctx context.Context, cl *kgo.Client, i int, partition int32) {
	s := l.slots.Get().(*slot)
	l.fill(s, i)
	s.record.Topic, s.record.Partition = l.spec.Topic, partition
	cl.Produce(ctx, &s.record, func(_ *kgo.Record, err error) {
		l.slots.Put(s)
		if err == nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = cmp.Or(l.err, err)
	})
}

// fill writes record i. The periods of nulls and empties have no common
// divisor, so all combinations occur.
func (l *loader) fill(s *slot, i int) {
	s.record = kgo.Record{Value: s.value}
	n := copy(s.value, strconv.AppendInt(s.key[:0], int64(i), 10)) // key as scratch
	from := i * 31 % l.spec.ValueSize
	copy(s.value[n:], l.text[from:])
	if l.spec.Keys {
		s.record.Key = strconv.AppendInt(s.key[:0], int64(i%1000), 10)
	}
	if l.spec.Headers {
		s.headers = [3]kgo.RecordHeader{
			{Key: "i", Value: strconv.AppendInt(s.header[:0], int64(i), 10)},
			{Key: "empty", Value: []byte{}},
			{Key: "null"},
		}
		s.record.Headers = s.headers[:]
	}
	if l.spec.Nulls {
		s.record.Value = sometimes(s.record.Value, i, 7, 11)
		s.record.Key = sometimes(s.record.Key, i, 3, 5)
	}
	if l.spec.Timestamps != nil {
		s.record.Timestamp = l.spec.Timestamps(i)
	}
}

func sometimes(b []byte, i, null, empty int) []byte {
	switch {
	case i%null == null-1:
		return nil
	case i%empty == empty-1:
		return []byte{}
	}
	return b
}

// loadText returns text of twice the size of a value: pseudo-random letters,
// in which every second run of eight repeats an earlier one.
func loadText(size int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz012345" // 32 of them
	text := make([]byte, 2*size)
	seed := uint32(1)
	for i := range text {
		if i/8%2 == 1 && i >= 16 {
			text[i] = text[i-16]
			continue
		}
		seed = seed*1664525 + 1013904223
		text[i] = letters[seed>>27]
	}
	return text
}
