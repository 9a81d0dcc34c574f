package verify

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var foo = cluster.Partition{Topic: "foo", Partition: 3}

// log is one partition in memory: batches in the order of their offsets, as a
// broker keeps them.
type log struct {
	mu      sync.Mutex
	batches [][]byte
	offsets cluster.Offsets
	reads   int
	onRead  func(l *log, n int) error // called with the number of the read
}

func newLog(batches ...[]byte) *log {
	l := &log{batches: batches}
	for i, b := range batches {
		h := batch.Header(b)
		if i == 0 {
			l.offsets.LogStart = h.Base()
		}
		l.offsets.HighWatermark = max(l.offsets.HighWatermark, h.Next())
	}
	return l
}

func (l *log) Read(ctx context.Context, _ cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads++; l.onRead != nil {
		if err := l.onRead(l, l.reads); err != nil {
			return nil, err
		}
	}
	if offset < l.offsets.LogStart {
		return nil, fmt.Errorf("offset %d: %w", offset, cluster.ErrOutOfRange)
	}
	var out []byte
	for _, b := range l.batches {
		h := batch.Header(b)
		if h.Next() <= offset || h.Base() >= l.offsets.HighWatermark {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > int(maxBytes) {
			break
		}
		out = append(out, b...)
	}
	return out, ctx.Err()
}

func (l *log) LogOffsets(ctx context.Context, _ cluster.Partition) (cluster.Offsets, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offsets, ctx.Err()
}

const base = 1000

// records are n different ones from offset base on.
func records(n int) []batch.Record {
	rs := make([]batch.Record, n)
	for i := range rs {
		rs[i] = batch.Record{
			Offset: base + int64(i), Timestamp: 1_700_000_000_000 + int64(i), Key: fmt.Appendf(nil, "key %d", i), Value: fmt.Appendf(nil, "value %d", i),
			Headers: []batch.RecordHeader{
				{Key: []byte("a"), Value: fmt.Append(nil, i)}, {Key: []byte("b"), Value: nil}, {Key: []byte("a"), Value: []byte{}},
			},
		}
		switch i % 5 {
		case 3:
			rs[i].Key, rs[i].Headers = nil, nil
		case 4:
			rs[i].Value = nil
		}
	}
	return rs
}

// cut makes batches of at most n records each.
func cut(rs []batch.Record, n int, codec batch.Codec) *log {
	var bs [][]byte
	for part := range slices.Chunk(rs, n) {
		bs = append(bs, batch.Encode(batch.Spec{Base: part[0].Offset, Codec: codec, Records: part}))
	}
	return newLog(bs...)
}

// with gives the records after a change to a copy of them.
func with(n int, change func(rs []batch.Record) []batch.Record) []batch.Record {
	rs := records(n)
	for i := range rs {
		rs[i].Value, rs[i].Key = bytes.Clone(rs[i].Value), bytes.Clone(rs[i].Key)
	}
	return change(rs)
}
