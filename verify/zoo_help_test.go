package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

var zoos = cluster.Partition{Topic: "zoo"}

// generated are the logs that some test has asked for: making one takes a while.
var generated = struct {
	sync.Mutex
	logs map[string]*zoo.Log
}{logs: map[string]*zoo.Log{}}

// animals is a log of the zoo, which nobody may write to.
func animals(seed uint64, o zoo.Options) *zoo.Log {
	generated.Lock()
	defer generated.Unlock()
	key := fmt.Sprint(seed, o)
	if generated.logs[key] == nil {
		generated.logs[key] = zoo.Generate(seed, o)
	}
	return generated.logs[key]
}

// loaded is a cluster that holds batches, with its log start where it is said.
func loaded(t testing.TB, start int64, batches [][]byte) *memory.Cluster {
	t.Helper()
	c := memory.New(memory.Options{})
	t.Cleanup(func() { c.Close() })
	if err := c.CreateTopic(cluster.NewTopic{Name: zoos.Topic, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if err := c.Inject(zoos, batches...); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteRecords(zoos, start); err != nil {
		t.Fatal(err)
	}
	return c
}

func compare(t testing.TB, source, destination verify.Reader, o verify.Options) verify.Report {
	t.Helper()
	r, err := verify.Partition(t.Context(), source, destination, zoos, &o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// again is a batch with other records, and all else as it was.
func again(h batch.Header, rs []batch.Record) []byte {
	s := batch.Spec{
		Base: h.Base(), LeaderEpoch: h.LeaderEpoch(), Codec: h.Codec(), Attributes: h.Attributes(), Records: rs, Next: h.Next(), Timestamp: h.MaxTimestamp(),
	}
	if h.DeleteHorizon() {
		s.Timestamp, s.AppendTime = h.BaseTimestamp(), h.MaxTimestamp()
	}
	if h.ProducerID() >= 0 {
		s.Producer = &batch.Producer{ID: h.ProducerID(), Epoch: h.ProducerEpoch(), Sequence: h.BaseSequence()}
	}
	return batch.Encode(s)
}

// stored are the records as they are in the batch: under a log append time, those
// that the producer sent have other timestamps than consumers see.
func stored(h batch.Header) (rs []batch.Record) {
	err := batch.Decode(h, func(r batch.Record) error {
		r.Headers = slices.Clone(r.Headers)
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		rs = append(rs, r)
		return nil
	})
	if err != nil {
		panic(err)
	}
	return rs
}

// filling is how a copy takes the offsets that have no record for consumers.
type filling int

const (
	holes filling = iota
	phantoms
	markers
	mixed
)

// copied is what a mirror by produce requests leaves of a log: what readers of
// committed records see, up to the last stable offset, in batches and codecs of its
// own, and something in the holes.
func copied(r *rand.Rand, l *zoo.Log, how filling) (out [][]byte) {
	rs := l.Visible(true)
	at := l.Start
	fill := func(to int64) {
		for at < to {
			n := min(to-at, 1+r.Int64N(40))
			f := how
			if f == mixed {
				f = filling(r.IntN(int(mixed)))
			}
			switch f {
			case phantoms:
				h := batch.Header(batch.AppendPhantoms(nil, int(n), 1_700_000_000_000, nil))
				h.Patch(batch.Patch{Base: at, ProducerID: 9000})
				out = append(out, h)
			case markers:
				n = 1
				out = append(out, batch.Encode(batch.Spec{
					Base: at, Attributes: batch.AttrControl | batch.AttrTransactional, Producer: &batch.Producer{ID: 9001, Sequence: -1},
					Records: []batch.Record{{Offset: at, Key: []byte{0, 0, 0, 0}, Value: make([]byte, 6)}}, Next: at + 1,
				}))
			}
			at += n
		}
	}
	for len(rs) > 0 {
		n := 1
		for most := 1 + r.IntN(60); n < most && n < len(rs) && rs[n].Offset == rs[n-1].Offset+1; {
			n++
		}
		fill(rs[0].Offset)
		at = rs[n-1].Offset + 1
		out = append(out, batch.Encode(batch.Spec{
			Base: rs[0].Offset, Codec: batch.Codec(r.IntN(5)), Records: rs[:n], Producer: &batch.Producer{ID: 8000, Sequence: int32(rs[0].Offset)}, Next: at,
		}))
		rs = rs[n:]
	}
	fill(l.LastStable())
	return out
}

// plain reads batches as they are, also such as no cluster of package memory takes.
type plain struct {
	offsets cluster.Offsets
	batches []zoo.Batch
}

func plainly(l *zoo.Log) *plain {
	return &plain{cluster.Offsets{LogStart: l.Start, HighWatermark: l.End}, l.Batches}
}

func (p *plain) LogOffsets(context.Context, cluster.Partition) (cluster.Offsets, error) {
	return p.offsets, nil
}

func (p *plain) Read(_ context.Context, _ cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	var out []byte
	for _, b := range p.batches {
		if b.Next <= offset || len(out) > 0 && len(out)+len(b.Bytes) > int(maxBytes) {
			continue
		}
		out = append(out, b.Bytes...)
	}
	return out, nil
}

func within(from, to int64, err error) func(context.Context, cluster.Partition) (cluster.Span, error) {
	return func(context.Context, cluster.Partition) (cluster.Span, error) {
		return cluster.Span{From: from, To: to}, err
	}
}

func asBatch(b []byte) zoo.Batch {
	h := batch.Header(b)
	return zoo.Batch{Bytes: b, Base: h.Base(), Next: h.Next()}
}
