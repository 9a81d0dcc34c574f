package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func filledBy(g GapFill) func(*Config) { return func(cfg *Config) { cfg.GapFill = g } }

// bothWays runs a test with markers and with phantoms.
func bothWays(t *testing.T, test func(t *testing.T, way func(*Config))) {
	for _, way := range []GapFill{GapMarkers, GapPhantoms} {
		t.Run(way.String(), func(t *testing.T) { test(t, filledBy(way)) })
	}
}

func hole(from, to int64) cluster.Batch { return cluster.Batch{Base: from, Next: to} }

// visible are the records that readers of committed records see.
func visible(t testing.TB, c *Cluster, p cluster.Partition) map[int64]string {
	t.Helper()
	got := map[int64]string{}
	for w := batch.Walk(readAll(t, c, p)); w.Next(); {
		h := w.Header()
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		if h.Control() {
			continue
		}
		if err := batch.Decode(h, func(r batch.Record) error {
			if !r.Phantom {
				got[r.Offset] = string(r.Value)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// holds: readers see the records of batchesAt at these offsets, and no others.
func holds(t testing.TB, c *Cluster, p cluster.Partition, spans ...cluster.Span) {
	t.Helper()
	want := map[int64]string{}
	for _, s := range spans {
		for o := s.From; o < s.To; o++ {
			want[o] = fmt.Sprint("value of ", o)
		}
	}
	if diff := cmp.Diff(want, visible(t, c, p)); diff != "" {
		t.Errorf("readers see (-want +got): %s", diff)
	}
}

func TestFillsHoles(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(*Config)) {
		f := fake(t, 1, "t", 1)
		c := open(t, f.ListenAddrs(), way)
		beginAt(t, c, stretchOf(p0))
		run := append(batchesAt(0, 1, 5, now()), hole(5, 12))
		run = append(run, batchesAt(12, 1, 3, now())...)
		run = append(run, hole(15, 16), hole(16, 20))
		mustAppend(t, c, p0, run)
		mustAppend(t, c, p0, batchesAt(20, 2, 5, now()))
		holds(t, c, p0, cluster.Span{From: 0, To: 5}, cluster.Span{From: 12, To: 15}, cluster.Span{From: 20, To: 30})
		// A hole alone, and a worker that was just started behind it.
		mustAppend(t, c, p0, []cluster.Batch{hole(30, 31)})
		other := open(t, f.ListenAddrs(), way)
		if e := beginAt(t, other, stretchOf(p0)); e.LogEnd != 31 {
			t.Fatalf("%+v", e)
		}
		mustAppend(t, other, p0, append([]cluster.Batch{hole(31, 40)}, batchesAt(40, 1, 5, now())...))
		holds(t, c, p0, cluster.Span{From: 0, To: 5}, cluster.Span{From: 12, To: 15}, cluster.Span{From: 20, To: 30}, cluster.Span{From: 40, To: 45})
	})
}

// A stretch may begin with a hole.
func TestFillsFirst(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(*Config)) {
		f := fake(t, 1, "t", 1)
		c := open(t, f.ListenAddrs(), way)
		beginAt(t, c, stretchOf(p0))
		mustAppend(t, c, p0, []cluster.Batch{hole(0, 3)})
		if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 3 {
			t.Errorf("%+v", e)
		}
		other := open(t, f.ListenAddrs(), way)
		beginAt(t, other, stretchOf(p0))
		mustAppend(t, other, p0, append(batchesAt(3, 2, 2, now()), hole(7, 8)))
		holds(t, c, p0, cluster.Span{From: 3, To: 7})
	})
}

func TestTakesTransactional(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	b := batch.Encode(batch.Spec{Base: 0, Attributes: batch.AttrTransactional, Producer: &batch.Producer{ID: 5},
		Records: []batch.Record{{Offset: 0, Timestamp: now(), Value: []byte("value of 0")}}})
	mustAppend(t, c, p0, []cluster.Batch{{Base: 0, Next: 1, MaxTimestamp: now(), Bytes: b}})
	holds(t, c, p0, cluster.Span{From: 0, To: 1})
	if h := batch.Header(readAll(t, c, p0)); h.Transactional() {
		t.Error("the transactional bit is still there")
	}
}

// What is refused without being sent, and nothing after it is taken before Ends.
func TestFillRefusals(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	marker := batchesAt(0, 1, 1, now())[0]
	marker.Bytes = batch.Encode(batch.Spec{Attributes: batch.AttrControl, Records: []batch.Record{{Value: []byte("x")}}})
	many := batchesAt(0, 1, 5, now())[0]
	many.Next = 4
	for name, tt := range map[string]struct {
		run  []cluster.Batch
		want error
	}{
		"offsets left out":         {batchesAt(5, 1, 1, now()), cluster.ErrGap},
		"left out between batches": {append(batchesAt(0, 1, 3, now()), batchesAt(4, 1, 3, now())...), cluster.ErrGap},
		"empty hole":               {[]cluster.Batch{hole(0, 0)}, cluster.ErrOutOfOrder},
		"hole behind its end":      {[]cluster.Batch{hole(0, 2), hole(1, 3)}, cluster.ErrOutOfOrder},
		"a marker":                 {[]cluster.Batch{marker}, cluster.ErrControlBatch},
		"more records than room":   {[]cluster.Batch{many}, cluster.ErrCorrupt},
	} {
		if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 0 {
			t.Fatalf("%s: something was appended: %+v", name, e)
		}
		if r := appendRun(t, c, p0, tt.run); !errors.Is(r.Err, tt.want) || r.Batches != 0 || r.Next != 0 {
			t.Errorf("%s: %+v, want %v", name, r, tt.want)
		}
		if r := appendRun(t, c, p0, batchesAt(0, 1, 1, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
			t.Errorf("%s: taken before Ends: %+v", name, r)
		}
	}
}

// A cluster that does not permit markers: the error says what is missing and what can be
// chosen, and nothing lands.
func TestMarkersNotPermitted(t *testing.T) {
	f := fake(t, 1, "t", 1)
	refuseMarkers(f, clusterAuthorizationFailed)
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	run := append(batchesAt(0, 1, 5, now()), hole(5, 7))
	r := appendRun(t, c, p0, append(run, batchesAt(7, 1, 1, now())...))
	if !errors.Is(r.Err, cluster.ErrGap) || cluster.Retriable(r.Err) || r.Batches != 1 || r.Next != 5 {
		t.Errorf("%+v", r)
	}
	for _, part := range []string{"ALTER", "phantoms", "[5,7)"} {
		if !strings.Contains(fmt.Sprint(r.Err), part) {
			t.Errorf("%v does not say %q", r.Err, part)
		}
	}
	if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 5 || !e.Ours {
		t.Errorf("%+v", e)
	}
}

func refuseMarkers(f *kfake.Cluster, code int16) {
	f.ControlKey(int16(kmsg.WriteTxnMarkers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		return markersAnswer(kreq, code), nil, true
	})
}

// markersAnswer says the same about every marker of a request.
func markersAnswer(kreq kmsg.Request, code int16) kmsg.Response {
	resp := kreq.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for _, m := range kreq.(*kmsg.WriteTxnMarkersRequest).Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, mt := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = mt.Topic
			for _, p := range mt.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = p, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp
}

// Gaps of many partitions share requests, and a long one does not keep a short one
// waiting until it is through.
func TestGapsShareRounds(t *testing.T) {
	const partitions, long = 20, 3 * roundMarkers
	f := fake(t, 1, "t", partitions)
	c := open(t, f.ListenAddrs())
	order := make(chan fetcher.Result, partitions)
	for i := range int32(partitions) {
		beginAt(t, c, stretchOf(cluster.Partition{Topic: "t", Partition: i}))
	}
	for i := range int32(partitions) {
		n := int64(1)
		if i == 0 {
			n = long
		}
		c.Append(cluster.Partition{Topic: "t", Partition: i}, []cluster.Batch{hole(0, n)}, nil, func(r fetcher.Result) { order <- r })
	}
	for i := range partitions {
		r := wait(t, order)
		if r.Err != nil || (r.Partition.Partition == 0) != (i == partitions-1) {
			t.Errorf("result %d is %+v", i, r)
		}
	}
}

// Whoever asks for the ends does not wait for the whole of a long hole, and the rest of
// it is filled afterwards.
func TestLongHoleIsHalted(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(*Config)) {
		const long = 400_000
		f := fake(t, 1, "t", 1)
		c := open(t, f.ListenAddrs(), way)
		beginAt(t, c, stretchOf(p0))
		got := make(chan fetcher.Result, 1)
		c.Append(p0, []cluster.Batch{hole(0, long)}, nil, func(r fetcher.Result) { got <- r })
		until(t, func() bool {
			l := c.lane(p0)
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.end > 0
		})
		e := beginAt(t, c, stretchOf(p0))
		r := wait(t, got)
		if r.Err == nil || r.Batches != 0 || e.LogEnd == 0 || e.LogEnd >= long || r.Next > e.LogEnd {
			t.Fatalf("result %+v, then the end %+v", r, e)
		}
		mustAppend(t, c, p0, append([]cluster.Batch{hole(e.LogEnd, e.LogEnd+10)}, batchesAt(e.LogEnd+10, 1, 3, now())...))
		holds(t, c, p0, cluster.Span{From: e.LogEnd + 10, To: e.LogEnd + 13})
	})
}
