package transporttest

import (
	"bytes"
	"errors"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

var limitChecks = []check{
	{"gaps", needsDestination, gaps},
	{"holes are filled", with("trait", func(e End) bool { return e.Destination.Traits().Fills }), holes},
	{"what is gone is filled and trimmed", with("trait, and brokers that remember", func(e End) bool { return e.Destination.Traits().Fills && !e.Forgetful }), goneHole},
	{"transactions", guarded(func(t fetcher.Traits) bool { return t.ControlBatches }), transactions},
	{"timestamps of the broker", guarded(func(t fetcher.Traits) bool { return t.LogAppendTime }), brokerTimestamps},
	{"reading", needsDestination, reading},
}

// guarded: the destination has the trait, or refuses what it is about.
func guarded(trait func(fetcher.Traits) bool) func(End) string {
	return with("trait, and nothing that would refuse", func(e End) bool { return !e.Unguarded || trait(e.Destination.Traits()) })
}

// allowed appends what a trait speaks of. Without the trait nothing of it lands, and
// the partition goes on afterwards.
func (k *kit) allowed(trait bool, name string, b cluster.Batch) {
	k.Helper()
	p := k.started()
	k.land(k.to, p, k.batch(0, 2))
	if trait {
		if k.traits.Fills && b.Base > 2 {
			k.land(k.to, p, cluster.Batch{Base: 2, Next: b.Base})
		}
		k.land(k.to, p, b)
		k.land(k.to, p, k.batch(b.Next, 2))
		k.holds(k.to, p, k.batch(0, 2), b, k.batch(b.Next, 2))
		return
	}
	if r := k.append(k.to, p, b); r.Err == nil || r.Batches != 0 {
		k.Errorf("%s, which is no trait: %+v", name, r)
	}
	if e := k.begin(k.to, stretch(p)); e.LogEnd != 2 {
		k.Fatalf("%s, which is no trait: log end %d, want 2", name, e.LogEnd)
	}
	k.land(k.to, p, k.batch(2, 2))
	k.holds(k.to, p, k.batch(0, 2), k.batch(2, 2))
}

// gaps are C4.1 and C4.3: offsets that compaction has left out, between batches and
// at the end of one.
func gaps(k *kit) {
	k.allowed(k.traits.Gaps, "a gap before a batch", k.batch(10, 2))
	k.allowed(k.traits.Gaps, "a gap inside a batch", k.batchOf(batch.Spec{Base: 2, Next: 20}, 3))
}

// transactions are C3.3 and C3.7: transactional records and the markers that end them.
func transactions(k *kit) {
	producer := &batch.Producer{ID: 4711, Epoch: 1}
	data := k.batchOf(batch.Spec{Base: 2, Attributes: batch.AttrTransactional, Producer: producer}, 3)
	k.allowed(k.traits.ControlBatches || k.traits.Fills, "a transactional batch", data)
	marker := asBatch(batch.Encode(batch.Spec{
		Base: 2, Attributes: batch.AttrTransactional | batch.AttrControl, Producer: &batch.Producer{ID: 4711, Epoch: 1, Sequence: -1},
		Records: []batch.Record{{Offset: 2, Timestamp: k.stamp, Key: []byte{0, 0, 0, 0}, Value: make([]byte, 6)}},
	}))
	k.allowed(k.traits.ControlBatches, "a marker", marker)
	if !k.traits.ControlBatches {
		return
	}
	p := k.started()
	k.land(k.to, p, k.batch(0, 2), data)
	k.replicated(k.to, stretch(p))
	if b, err := k.to.Read(k.ctx, p, 2, 1); err != nil || !sameButEpoch(b, data.Bytes) {
		k.Errorf("the transactional batch is not the one appended: %v", err)
	}
}

// sameButEpoch compares the bytes of two batches; the leader epoch is not part of
// what the producer has written.
func sameButEpoch(a, b []byte) bool {
	const from, to = 12, 16
	return len(a) == len(b) && bytes.Equal(a[:from], b[:from]) && bytes.Equal(a[to:], b[to:])
}

// brokerTimestamps is C5.3: the time at which the source's broker took a batch.
func brokerTimestamps(k *kit) {
	b := k.batchOf(batch.Spec{Base: 2, Attributes: batch.AttrLogAppendTime, Timestamp: k.stamp - 5000}, 2)
	k.allowed(k.traits.LogAppendTime, "a batch with the broker's timestamp", b)
	if !k.traits.LogAppendTime {
		return
	}
	p := k.started()
	k.land(k.to, p, k.batch(0, 2), b)
	k.replicated(k.to, stretch(p))
	if k.traits.Fills {
		k.holds(k.to, p, k.batch(0, 2), b) // as the records' own
		return
	}
	got, err := k.to.Read(k.ctx, p, 2, 1)
	if h := batch.Header(got); err != nil || !h.LogAppendTime() || h.MaxTimestamp() != k.stamp-5000 {
		k.Errorf("the broker's timestamp is lost: %v", err)
	}
}

// reading: whole batches, the first holds the offset asked for or is the first after
// it, one at least; nothing at the end; nothing outside of the log.
func reading(k *kit) {
	p := k.started()
	all := k.run(0, 4, 5)
	k.land(k.to, p, all...)
	k.replicated(k.to, stretch(p))
	for at, base := range map[int64]int64{0: 0, 4: 0, 5: 5, 19: 15} {
		b, err := k.to.Read(k.ctx, p, at, 1)
		if err != nil || len(b) < batch.HeaderSize || batch.Header(b).Base() != base || batch.Header(b).Check() != nil {
			k.Errorf("read at %d: %d bytes, %v; want the batch at %d", at, len(b), err, base)
			continue
		}
		clear(b) // it is ours
	}
	k.holds(k.to, p, all...)
	if b, err := k.to.Read(k.ctx, p, 20, 1<<20); err != nil || len(b) != 0 {
		k.Errorf("read at the end: %d bytes, %v", len(b), err)
	}
	if b, err := k.to.Read(k.ctx, p, 21, 1<<20); !errors.Is(err, cluster.ErrOutOfRange) {
		k.Errorf("read behind the end: %d bytes, %v", len(b), err)
	}
}

// holes: what is told to be without records takes up its offsets, before, between and
// behind batches and alone; readers see nothing there, and what belongs behind it lands
// at its offset. Repeating one changes nothing.
func holes(k *kit) {
	p := k.started()
	hole := func(from, to int64) cluster.Batch {
		return cluster.Batch{Base: from, Next: to, MaxTimestamp: k.stamp}
	}
	behind := k.batchOf(batch.Spec{Base: 13, Next: 19}, 3)
	k.land(k.to, p, hole(0, 3), k.batch(3, 2), hole(5, 6), k.batch(6, 1), hole(7, 13), behind)
	k.land(k.to, p, hole(19, 20))
	k.land(k.to, p, k.batch(20, 2), hole(22, 1500))
	if e := k.replicated(k.to, stretch(p)); e.LogEnd != 1500 || e.LogStart != 0 {
		k.Fatalf("after holes up to 1500: %+v", e)
	}
	k.append(k.to, p, hole(22, 1500)) // a result of either kind
	if e := k.begin(k.to, stretch(p)); e.LogEnd != 1500 {
		k.Fatalf("the log end after a hole that was repeated: %+v", e)
	}
	want := []cluster.Batch{k.batch(3, 2), k.batch(6, 1), behind, k.batch(20, 2), k.batch(1500, 2)}
	k.land(k.to, p, k.batch(1500, 2))
	k.holds(k.to, p, want...)
	if r := k.append(k.to, p, hole(1499, 1510)); r.Err == nil || r.Batches != 0 {
		k.Errorf("a hole across the end: %+v", r)
	}
	if e := k.begin(k.to, stretch(p)); e.LogEnd != 1502 {
		k.Fatalf("%+v", e)
	}
}

// goneHole: what the source does not have any more is filled too, and trimmed.
func goneHole(k *kit) {
	p := k.started()
	k.land(k.to, p, k.batch(0, 2), cluster.Batch{Base: 2, Next: 3000, MaxTimestamp: -1, Gone: true}, k.batch(3000, 1))
	k.replicated(k.to, stretch(p))
	if err := k.to.Trim(k.ctx, []fetcher.Cut{{Partition: p, Offset: 3000}})[0]; err != nil {
		k.Fatal(err)
	}
	if e := k.begin(k.to, stretch(p)); e.LogStart != 3000 || e.LogEnd != 3001 {
		k.Fatalf("after a trim to 3000: %+v", e)
	}
	k.holds(k.to, p, k.batch(3000, 1))
}
