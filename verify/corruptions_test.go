package verify_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/verify"
)

// victim is a destination that something is done to. Its batches are those of the
// log, one for one.
type victim struct {
	*rand.Rand
	log     *zoo.Log
	batches [][]byte
	start   int64
}

// pick gives a batch that consumers see, and one of its records, for which ok says
// yes; it prefers none.
func (v *victim) pick(ok func(b zoo.Batch, i int) bool) (k, i int) {
	for _, k := range v.Perm(len(v.log.Batches)) {
		b := v.log.Batches[k]
		if b.Transaction != nil && b.Transaction.Fate != zoo.Committed {
			continue
		}
		for _, i := range v.Perm(len(b.Records)) {
			if b.Records[i].Offset >= v.start && ok(b, i) {
				return k, i
			}
		}
	}
	panic("the log has no such record")
}

// change encodes a batch again with one record changed, and says what that is.
func (v *victim) change(kind verify.Kind, ok func(r batch.Record) bool, f func(r *batch.Record)) string {
	k, i := v.pick(func(b zoo.Batch, i int) bool { return ok(b.Records[i]) })
	h := batch.Header(v.batches[k])
	rs := stored(h)
	f(&rs[i])
	v.batches[k] = again(h, rs)
	return fmt.Sprintf("%d %s", rs[i].Offset, kind)
}

// without takes records out of a batch, which stays, as after compaction.
func (v *victim) without(k int, from, to int) {
	h := batch.Header(v.batches[k])
	v.batches[k] = again(h, slices.Delete(stored(h), from, to))
}

// marker finds the marker of a transaction that has records, and the first of them.
func (v *victim) marker(fate zoo.Fate) (marker int, first int64) {
	for _, k := range v.Perm(len(v.log.Batches)) {
		m := v.log.Batches[k]
		if !m.Marker || m.Transaction.Fate != fate {
			continue
		}
		for _, b := range v.log.Batches {
			if b.Transaction == m.Transaction && len(b.Records) > 0 && b.Records[0].Offset >= v.start {
				return k, b.Records[0].Offset
			}
		}
	}
	panic("the log has no such marker")
}

// remark writes another type of marker.
func (v *victim) remark(k int, kind byte) {
	h := batch.Header(v.batches[k])
	rs := stored(h)
	rs[0].Key[3] = kind
	v.batches[k] = again(h, rs)
}

func anyRecord(batch.Record) bool { return true }

func spare(b []byte) []byte { return append(bytes.Clone(b), 'x') }

// corruptions are what may go wrong with a copy. Each says which difference has to be
// reported first.
var corruptions = []struct {
	name string
	do   func(v *victim) (want string)
}{
	{"a bit of a value", func(v *victim) string {
		return v.change(verify.Value, func(r batch.Record) bool { return len(r.Value) > 0 }, func(r *batch.Record) { r.Value[v.IntN(len(r.Value))] ^= 1 << v.IntN(8) })
	}},
	{"a bit of a key", func(v *victim) string {
		return v.change(verify.Key, func(r batch.Record) bool { return len(r.Key) > 0 }, func(r *batch.Record) { r.Key[v.IntN(len(r.Key))] ^= 1 << v.IntN(8) })
	}},
	{"a byte more in a value", func(v *victim) string {
		return v.change(verify.Value, anyRecord, func(r *batch.Record) { r.Value = spare(r.Value) })
	}},
	{"a header's value", func(v *victim) string {
		return v.change(verify.Headers, func(r batch.Record) bool { return len(r.Headers) > 0 }, func(r *batch.Record) { r.Headers[0].Value = spare(r.Headers[0].Value) })
	}},
	{"a header's key", func(v *victim) string {
		return v.change(verify.Headers, func(r batch.Record) bool { return len(r.Headers) > 0 }, func(r *batch.Record) { r.Headers[0].Key = spare(r.Headers[0].Key) })
	}},
	{"headers in another order", func(v *victim) string {
		return v.change(verify.Headers, func(r batch.Record) bool {
			return len(r.Headers) > 1 && fmt.Sprintf("%q", r.Headers[0]) != fmt.Sprintf("%q", r.Headers[1])
		}, func(r *batch.Record) { r.Headers[0], r.Headers[1] = r.Headers[1], r.Headers[0] })
	}},
	{"one of two equal header keys", func(v *victim) string {
		return v.change(verify.Headers, func(r batch.Record) bool {
			return len(r.Headers) > 1 && bytes.Equal(r.Headers[0].Key, r.Headers[1].Key)
		}, func(r *batch.Record) { r.Headers = r.Headers[1:] })
	}},
	{"a null header value that is empty", func(v *victim) string {
		return v.change(verify.Headers, func(r batch.Record) bool { return len(r.Headers) > 0 && r.Headers[0].Value == nil }, func(r *batch.Record) { r.Headers[0].Value = []byte{} })
	}},
	{"a tombstone that is empty", func(v *victim) string {
		return v.change(verify.Value, func(r batch.Record) bool { return r.Value == nil }, func(r *batch.Record) { r.Value = []byte{} })
	}},
	{"an empty key that is null", func(v *victim) string {
		return v.change(verify.Key, func(r batch.Record) bool { return r.Key != nil && len(r.Key) == 0 }, func(r *batch.Record) { r.Key = nil })
	}},
	{"a timestamp of a millisecond later", func(v *victim) string {
		k, i := v.pick(func(b zoo.Batch, i int) bool { return !batch.Header(b.Bytes).LogAppendTime() })
		h := batch.Header(v.batches[k])
		rs := stored(h)
		rs[i].Timestamp++
		v.batches[k] = again(h, rs)
		return fmt.Sprintf("%d timestamp", rs[i].Offset)
	}},
	{"log append time lost", func(v *victim) string {
		k, _ := v.pick(func(b zoo.Batch, i int) bool { return i == 0 && batch.Header(b.Bytes).LogAppendTime() })
		h := batch.Header(v.batches[k])
		rs := stored(h)
		for i := range rs {
			rs[i].Timestamp -= 1000
		}
		v.batches[k] = batch.Encode(batch.Spec{Base: h.Base(), Codec: h.Codec(), Records: rs, Next: h.Next()})
		return fmt.Sprintf("%d timestamp", rs[0].Offset)
	}},
	{"a delete horizon taken for a time", func(v *victim) string {
		k, _ := v.pick(func(b zoo.Batch, i int) bool {
			return i == 0 && batch.Header(b.Bytes).DeleteHorizon() && !batch.Header(b.Bytes).LogAppendTime()
		})
		h := batch.Header(v.batches[k])
		rs := stored(h)
		for i := range rs {
			rs[i].Timestamp += 86_400_000
		}
		v.batches[k] = again(h, rs)
		return fmt.Sprintf("%d timestamp", rs[0].Offset)
	}},
	{"two records swapped", func(v *victim) string {
		k, i := v.pick(func(b zoo.Batch, i int) bool {
			return i > 0 && !bytes.Equal(b.Records[i].Value, b.Records[i-1].Value) && b.Records[i].Value != nil && b.Records[i-1].Value != nil
		})
		h := batch.Header(v.batches[k])
		rs := stored(h)
		rs[i].Value, rs[i-1].Value = rs[i-1].Value, rs[i].Value
		v.batches[k] = again(h, rs)
		return fmt.Sprintf("%d value", rs[i-1].Offset)
	}},
	{"a record a second time, in a hole", func(v *victim) string {
		k, i := v.pick(func(b zoo.Batch, i int) bool { return i > 0 && b.Records[i].Offset > b.Records[i-1].Offset+1 })
		h := batch.Header(v.batches[k])
		rs := stored(h)
		twice := rs[i-1]
		twice.Offset++
		v.batches[k] = again(h, slices.Insert(rs, i, twice))
		return fmt.Sprintf("%d extra", twice.Offset)
	}},
	{"the first record of a batch missing", func(v *victim) string {
		k, _ := v.pick(func(b zoo.Batch, i int) bool { return i == 0 && len(b.Records) > 2 })
		v.without(k, 0, 1)
		return fmt.Sprintf("%d missing", v.log.Batches[k].Records[0].Offset)
	}},
	{"a record in the middle missing", func(v *victim) string {
		k, i := v.pick(func(b zoo.Batch, i int) bool { return i > 0 && i < len(b.Records)-1 })
		v.without(k, i, i+1)
		return fmt.Sprintf("%d missing", v.log.Batches[k].Records[i].Offset)
	}},
	{"the last record of a batch missing", func(v *victim) string {
		k, i := v.pick(func(b zoo.Batch, i int) bool { return i > 0 && i == len(b.Records)-1 })
		v.without(k, i, i+1)
		return fmt.Sprintf("%d missing", v.log.Batches[k].Records[i].Offset)
	}},
	{"a batch missing", func(v *victim) string {
		k, _ := v.pick(func(b zoo.Batch, i int) bool { return i == 0 && b.Next < v.log.End })
		v.batches = slices.Delete(v.batches, k, k+1)
		return fmt.Sprintf("%d missing", v.log.Batches[k].Records[0].Offset)
	}},
	{"everything shifted by one from a batch on", func(v *victim) string {
		k, _ := v.pick(func(b zoo.Batch, i int) bool { return i == 0 && len(b.Records) == 1 && b.Next < v.log.End })
		for j := k; j < len(v.batches); j++ {
			h := batch.Header(v.batches[j])
			h.Patch(batch.Patch{Base: h.Base() + 1, ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(), BaseSequence: h.BaseSequence()})
		}
		return fmt.Sprintf("%d missing", v.log.Batches[k].Records[0].Offset)
	}},
	{"a record of somebody else in a hole", func(v *victim) string {
		for k := 1; k < len(v.batches); k++ {
			if at := v.log.Batches[k-1].Next; at < v.log.Batches[k].Base {
				v.batches = slices.Insert(v.batches, k, batch.Encode(batch.Spec{Base: at, Records: []batch.Record{{Offset: at, Value: []byte("foreign")}}, Next: at + 1}))
				return fmt.Sprintf("%d extra", at)
			}
		}
		panic("no hole")
	}},
	{"aborted records visible: the marker says commit", func(v *victim) string {
		k, first := v.marker(zoo.Aborted)
		v.remark(k, 1)
		return fmt.Sprintf("%d exposed", first)
	}},
	{"aborted records visible: they are in no transaction", func(v *victim) string {
		_, first := v.marker(zoo.Aborted)
		for k, b := range v.log.Batches {
			if len(b.Records) > 0 && b.Records[0].Offset == first {
				h := batch.Header(v.batches[k])
				v.batches[k] = batch.Encode(batch.Spec{Base: h.Base(), Codec: h.Codec(), Records: b.Records, Next: h.Next()})
			}
		}
		return fmt.Sprintf("%d exposed", first)
	}},
	{"committed records aborted", func(v *victim) string {
		k, first := v.marker(zoo.Committed)
		v.remark(k, 0)
		return fmt.Sprintf("%d hidden", first)
	}},
	{"a committed record missing", func(v *victim) string {
		k, i := v.pick(func(b zoo.Batch, i int) bool { return b.Transaction != nil && len(b.Records) > 1 })
		v.without(k, i, i+1)
		return fmt.Sprintf("%d missing", v.log.Batches[k].Records[i].Offset)
	}},
	{"a marker missing, and the next of its producer too", func(v *victim) string {
		k, first := v.marker(zoo.Committed)
		id := v.log.Batches[k].Transaction.Producer
		for j := len(v.batches) - 1; j >= k; j-- {
			if b := v.log.Batches[j]; b.Transaction != nil && b.Transaction.Producer == id && (b.Marker || b.Transaction != v.log.Batches[k].Transaction) {
				v.batches = slices.Delete(v.batches, j, j+1)
			}
		}
		return fmt.Sprintf("%d hidden", first)
	}},
	{"a marker as data", func(v *victim) string {
		done := map[int64]bool{} // producers with a later marker, which would end the transaction, too
		for k := len(v.batches) - 1; ; k-- {
			b := v.log.Batches[k]
			if !b.Marker {
				continue
			}
			if b.Transaction.Fate != zoo.Aborted || done[b.Transaction.Producer] {
				done[b.Transaction.Producer] = true
				continue
			}
			h := batch.Header(v.batches[k])
			v.batches[k] = batch.Encode(batch.Spec{Base: h.Base(), Records: stored(h), Next: h.Next()})
			return fmt.Sprintf("%d extra", h.Base())
		}
	}},
	{"a batch that says less than it holds", func(v *victim) string {
		k, _ := v.pick(func(b zoo.Batch, i int) bool { return i > 0 && b.Records[0].Offset == b.Base })
		h := batch.Header(v.batches[k])
		s := batch.Spec{Base: h.Base(), Codec: h.Codec(), Records: v.log.Batches[k].Records, Next: h.Base() + 1}
		v.batches[k] = batch.Encode(s)
		return fmt.Sprintf("%d malformed", h.Base())
	}},
	{"another partition's log", func(v *victim) string {
		other := animals(v.log.Seed+1000, zoo.Options{Settled: true, Batches: 60})
		v.batches = nil
		for _, b := range other.Bytes() {
			v.batches = append(v.batches, bytes.Clone(b))
		}
		// The lowest offset at which the two are not the same.
		a, b := v.log.Visible(true), other.Visible(true)
		i := 0
		for reflect.DeepEqual(a[i], b[i]) {
			i++
		}
		return fmt.Sprintf("%d ", min(a[i].Offset, b[i].Offset))
	}},
}

func TestCorruptions(t *testing.T) {
	if len(corruptions) < 20 {
		t.Fatalf("only %d", len(corruptions))
	}
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(2) {
				l := animals(seed, zoo.Options{Settled: true, MaxValue: 2000, Batches: 120})
				v := &victim{Rand: rand.New(rand.NewPCG(seed, 7)), log: l, batches: l.Bytes(), start: l.Start}
				for i := range v.batches {
					v.batches[i] = bytes.Clone(v.batches[i])
				}
				want := c.do(v)
				r := compare(t, loaded(t, l.Start, l.Bytes()), loaded(t, v.start, v.batches), verify.Options{Checksums: seed == 0})
				if r.Equal || len(r.Differences) == 0 {
					t.Fatalf("seed %d: want %s, nothing was found: %v", seed, want, r)
				}
				got := fmt.Sprintf("%d %s", r.Differences[0].Offset, r.Differences[0].Kind)
				if got != want && fmt.Sprintf("%d ", r.Differences[0].Offset) != want {
					t.Errorf("seed %d: first difference %s, want %s: %v", seed, got, want, r.Differences[:min(3, len(r.Differences))])
				}
				if seed == 0 && r.SourceSum.Sum == r.DestinationSum.Sum && r.Differences[0].Kind != verify.Malformed {
					t.Errorf("seed %d: the checksums are the same", seed)
				}
			}
		})
	}
}

// What no consumer can tell apart is equal, and a strict comparison tells it.
func TestHarmless(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(v *victim) (want string)
		ends bool
	}{
		"compressed otherwise": {func(v *victim) string {
			k, _ := v.pick(func(b zoo.Batch, i int) bool { return i == 0 && batch.Header(b.Bytes).Codec() == batch.Zstd })
			h := batch.Header(v.batches[k])
			s := batch.Header(again(h, stored(h)))
			if !bytes.Equal(s, h) {
				panic("encoding again is not the same")
			}
			v.batches[k] = batch.Encode(batch.Spec{
				Base: h.Base(), Codec: batch.LZ4, Attributes: h.Attributes() & (batch.AttrLogAppendTime | batch.AttrTransactional), Records: stored(h), Next: h.Next(),
				Timestamp: h.MaxTimestamp(), Producer: &batch.Producer{ID: h.ProducerID(), Epoch: h.ProducerEpoch()},
			})
			return fmt.Sprintf("%d codec", v.log.Batches[k].Records[0].Offset)
		}, true},
		"split otherwise": {func(v *victim) string {
			k, i := v.pick(func(b zoo.Batch, i int) bool {
				return i > 0 && b.Transaction == nil && !batch.Header(b.Bytes).LogAppendTime()
			})
			h := batch.Header(v.batches[k])
			rs := stored(h)
			at := rs[i].Offset
			v.batches = slices.Replace(v.batches, k, k+1,
				batch.Encode(batch.Spec{Base: h.Base(), Codec: h.Codec(), Records: rs[:i], Next: at}),
				batch.Encode(batch.Spec{Base: at, Codec: h.Codec(), Records: rs[i:], Next: h.Next()}))
			return fmt.Sprintf("%d batch bounds", at)
		}, true},
		"append time as create time": {func(v *victim) string {
			k, _ := v.pick(func(b zoo.Batch, i int) bool {
				return i == 0 && batch.Header(b.Bytes).LogAppendTime() && b.Transaction == nil
			})
			h, rs := batch.Header(v.batches[k]), v.log.Batches[k].Records
			v.batches[k] = batch.Encode(batch.Spec{Base: h.Base(), Codec: h.Codec(), Records: rs, Next: h.Next()})
			return fmt.Sprintf("%d timestamp type", rs[0].Offset)
		}, true},
		"aborted records left out": {func(v *victim) string {
			_, first := v.marker(zoo.Aborted)
			for k := len(v.batches) - 1; k >= 0; k-- {
				if b := v.log.Batches[k]; len(b.Records) > 0 && b.Records[0].Offset == first {
					v.batches = slices.Delete(v.batches, k, k+1)
				}
			}
			return fmt.Sprintf("%d aborted records", first)
		}, true},
		"tail not there": {func(v *victim) string {
			v.batches = v.batches[:len(v.batches)-20]
			return fmt.Sprintf("%d log end", batch.Header(v.batches[len(v.batches)-1]).Next())
		}, false},
		"destination longer": {func(v *victim) string {
			v.batches = append(v.batches, batch.Encode(batch.Spec{Base: v.log.End, Records: []batch.Record{{Offset: v.log.End, Value: []byte("local")}}, Next: v.log.End + 1}))
			return fmt.Sprintf("%d log end", v.log.End)
		}, false},
		"another log start": {func(v *victim) string {
			v.start = v.log.Batches[10].Base
			return fmt.Sprintf("%d log start", v.log.Start)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				l := animals(seed, zoo.Options{Settled: true, MaxValue: 2000, Batches: 120})
				v := &victim{Rand: rand.New(rand.NewPCG(seed, 7)), log: l, batches: l.Bytes(), start: l.Start}
				for i := range v.batches {
					v.batches[i] = bytes.Clone(v.batches[i])
				}
				want := c.do(v)
				source, destination := loaded(t, l.Start, l.Bytes()), loaded(t, v.start, v.batches)
				r := compare(t, source, destination, verify.Options{})
				if !r.Equal || r.Noted == 0 || r.EndsEqual != c.ends {
					t.Fatalf("seed %d: %v, noted %v", seed, r, r.Notes)
				}
				if got := fmt.Sprintf("%d %s", r.Notes[0].Offset, r.Notes[0].Kind); got != want {
					t.Errorf("seed %d: first note %s, want %s", seed, got, want)
				}
				s := compare(t, source, destination, verify.Options{Strict: true})
				if s.Equal || s.Noted != 0 || s.Different != r.Noted || s.Differences[0] != r.Notes[0] {
					t.Errorf("seed %d: strict: %v, want %d of %v", seed, s, r.Noted, r.Notes)
				}
			}
		})
	}
}
