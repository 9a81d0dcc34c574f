package fetcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

func TestJudgeEnds_I2(t *testing.T) {
	for _, c := range []struct {
		name        string
		source      cluster.Offsets
		start, end  int64
		empty       bool
		err         error
		from, until int64
	}{
		{name: "both empty", empty: true},
		{name: "empty, source from 0", source: cluster.Offsets{HighWatermark: 10}, empty: true},
		{name: "empty, source from 5", source: cluster.Offsets{LogStart: 5, HighWatermark: 10}, empty: true},
		{name: "empty above the source's start", source: cluster.Offsets{HighWatermark: 10}, start: 7, end: 7, empty: true},
		{name: "prefix", source: cluster.Offsets{HighWatermark: 10}, end: 10},
		{name: "prefix of a trimmed log", source: cluster.Offsets{LogStart: 5, HighWatermark: 10}, start: 2, end: 9},
		{name: "meets the source's start", source: cluster.Offsets{LogStart: 5, HighWatermark: 10}, end: 5, empty: true},
		{name: "ends before the source starts", source: cluster.Offsets{LogStart: 5, HighWatermark: 10}, end: 4, err: cluster.ErrRetention, from: 4, until: 5},
		{name: "longer than the source (C1.9)", source: cluster.Offsets{HighWatermark: 10}, end: 12, err: cluster.ErrDiverged, from: 10, until: 12},
		{name: "empty beyond the source", source: cluster.Offsets{HighWatermark: 10}, start: 12, end: 12, err: cluster.ErrDiverged, from: 10, until: 12},
		{name: "source was emptied", source: cluster.Offsets{}, end: 3, err: cluster.ErrDiverged, from: 0, until: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			how, empty, err := judgeEnds(part(0), c.source, End{LogStart: c.start, LogEnd: c.end})
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				var at *cluster.OffsetError
				if !errors.As(err, &at) || at.Span != (cluster.Span{From: c.from, To: c.until}) {
					t.Errorf("error %v, want the span [%d,%d)", err, c.from, c.until)
				}
				return
			}
			if empty != c.empty || how == "" {
				t.Errorf("empty %v (%q), want %v", empty, how, c.empty)
			}
		})
	}
}

// logs makes the two clusters of an alignment: the destination holds ours, and
// the source theirs.
func logs(t *testing.T, theirs, ours [][]byte) (*sourceCluster, *destination) {
	src, dst := newSource(t, 1), newDestination(t)
	src.create(part(0), 1)
	l := src.logs[part(0)]
	for _, b := range theirs {
		l.append(b)
	}
	dst.with(part(0), func(l *destinationLog) {
		for _, b := range ours {
			h := batch.Header(b)
			l.batches = append(l.batches, sourceBatch{h.Base(), h.Next(), h.LeaderEpoch(), b})
			l.end = h.Next()
		}
	})
	return src, dst
}

// tens is a log of batches of ten records, up to offset end.
func tens(end int64, epoch int32) (out [][]byte) {
	for base := int64(0); base < end; base += 10 {
		out = append(out, plain(base, 10, 5, epoch))
	}
	return out
}

// other replaces the batch at base with one of which the record at offset has
// another value.
func other(b [][]byte, offset int64) [][]byte {
	base := offset / 10 * 10
	rs := make([]batch.Record, 10)
	for i := range rs {
		o := base + int64(i)
		v := make([]byte, 5)
		copy(v, fmt.Sprint(o))
		if o == offset {
			v[4] = 'X'
		}
		rs[i] = batch.Record{Offset: o, Timestamp: 1_700_000_000_000 + o, Value: v}
	}
	b[base/10] = batch.Encode(batch.Spec{Base: base, Records: rs})
	return b
}

func phantoms(base int64, n int) []byte {
	b := batch.AppendPhantoms(nil, n, 1000, nil)
	batch.Header(b).Patch(batch.Patch{Base: base, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
	return b
}

func control(base int64) []byte {
	return batch.Encode(batch.Spec{Base: base, Attributes: batch.AttrControl | batch.AttrTransactional, Records: []batch.Record{rec(base, "m")}})
}

func TestAlignComparesRecords_I2(t *testing.T) {
	for _, c := range []struct {
		name         string
		theirs, ours [][]byte
		at           int64 // of the difference; -1: none
		epoch        int32
	}{
		{"prefix", tens(100, 3), tens(60, 3), -1, 3},
		{"equal", tens(60, 0), tens(60, 0), -1, 0},
		{"batches cut differently", tens(100, 3), [][]byte{plain(0, 60, 5, 9)}, -1, 3},
		{"source epoch at the end of ours", slices.Concat(tens(50, 3), [][]byte{plain(50, 10, 5, 4), plain(60, 10, 5, 5)}), tens(60, 0), -1, 4},
		{"differs at the end", tens(100, 0), other(tens(60, 0), 59), 59, 0},
		{"differs at the start", tens(100, 0), other(tens(60, 0), 3), 3, 0},
		{"differs in the middle", tens(100, 0), other(tens(60, 0), 31), 31, 0},
		{"another timestamp", tens(20, 0), [][]byte{plain(0, 10, 5, 0), batch.Encode(batch.Spec{Base: 10, Records: []batch.Record{rec(10, "10")}})}, 10, 0},
		{"fence against a record", tens(100, 0), append(tens(60, 0), phantoms(60, 1)), 60, 0},
		{"fence against a marker", slices.Concat(tens(60, 0), [][]byte{control(60)}), append(tens(60, 0), phantoms(60, 1)), -1, 0},
		{"record against a marker", slices.Concat(tens(60, 0), [][]byte{control(60)}), append(tens(60, 0), plain(60, 1, 5, 0)), 60, 0},
		{"hole on both sides", [][]byte{plain(0, 10, 5, 2), plain(40, 10, 5, 2)}, [][]byte{plain(0, 10, 5, 2), plain(40, 10, 5, 2)}, -1, 2},
		{"fillers where the source has a hole", [][]byte{plain(0, 10, 5, 2), plain(40, 10, 5, 2)}, [][]byte{plain(0, 10, 5, 2), phantoms(10, 30), plain(40, 10, 5, 2)}, -1, 2},
		{"fillers at the end", [][]byte{plain(0, 10, 5, 2), plain(40, 10, 5, 2)}, [][]byte{plain(0, 10, 5, 2), phantoms(10, 30)}, -1, -1},
		{"hole in ours", tens(60, 0), [][]byte{plain(0, 10, 5, 0), plain(50, 10, 5, 0)}, 30, 0},
		{"hole at the source", [][]byte{plain(0, 10, 5, 0), plain(50, 10, 5, 0)}, tens(60, 0), 30, 0},
		{"our bytes are wrong", tens(20, 0), nil, -2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.at == -2 {
				c.ours = tens(20, 0)
				c.ours[1][70] ^= 1
			}
			src, dst := logs(t, c.theirs, c.ours)
			got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]
			switch {
			case c.at == -2:
				if !errors.Is(got.Err, cluster.ErrCorrupt) {
					t.Errorf("error %v, want corrupt", got.Err)
				}
			case c.at >= 0:
				var at *cluster.OffsetError
				if !errors.As(got.Err, &at) || !errors.Is(got.Err, cluster.ErrDiverged) || at.Span.From != c.at {
					t.Errorf("error %v, want diverged at %d", got.Err, c.at)
				}
			case got.Err != nil:
				t.Errorf("error %v", got.Err)
			case got.Next != dst.end(part(0)) || got.LastEpoch != c.epoch:
				t.Errorf("next %d, epoch %d; want %d and %d", got.Next, got.LastEpoch, dst.end(part(0)), c.epoch)
			}
		})
	}
}

func TestAlignStartsAnEmptyLog_C1_7(t *testing.T) {
	for _, c := range []struct {
		name   string
		start  int64
		theirs [][]byte
		want   []int64 // StartAt
	}{
		{"source from 0", 0, tens(20, 0), nil},
		{"source starts at a batch", 10, tens(20, 0)[1:], []int64{10}},
		{"source starts inside a batch", 15, tens(20, 0)[1:], []int64{10}},
		{"source starts in a hole", 5, tens(20, 0)[1:], []int64{5}},
		{"source is empty", 7, nil, []int64{7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, c.theirs, nil)
			src.logs[part(0)].start = c.start
			board := &Progress{}
			got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}, Progress: board}})[0]
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if diff := cmp.Diff(c.want, dst.started); diff != "" {
				t.Errorf("started at (-want +got):\n%s", diff)
			}
			if next := dst.end(part(0)); got.Next != next || got.Trimmed != next || board.LogEnd.Load() != next || got.LastEpoch != cluster.NoEpoch {
				t.Errorf("next %d, trimmed %d, shown %d, epoch %d; want %d and no epoch", got.Next, got.Trimmed, board.LogEnd.Load(), got.LastEpoch, next)
			}
		})
	}
	t.Run("destination cannot", func(t *testing.T) {
		src, dst := logs(t, nil, nil)
		src.logs[part(0)].start = 7
		got := aligned(t.Context(), src, struct{ Log }{dst}, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]
		if !errors.Is(got.Err, errors.ErrUnsupported) {
			t.Errorf("error %v, want unsupported", got.Err)
		}
	})
}

func TestAlignAfterAStop(t *testing.T) {
	for _, c := range []struct {
		name    string
		stopped bool
		endErr  error
		fresh   bool
		want    error
		renewed bool
	}{
		{"stopped", true, nil, true, nil, true},
		{"not stopped, a new stretch", false, nil, true, nil, true},
		{"goes on", false, nil, false, nil, false},
		{"foreign records, a new stretch", true, cluster.ErrForeignWrite, true, nil, true},
		{"foreign records", false, cluster.ErrForeignWrite, false, cluster.ErrForeignWrite, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, tens(40, 1), tens(20, 1))
			dst.with(part(0), func(l *destinationLog) {
				l.stopped, l.endErr, l.endsLeft = c.stopped, c.endErr, 1
			})
			got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0), New: c.fresh}}})[0]
			if !errors.Is(got.Err, c.want) || (got.Err == nil) != (c.want == nil) {
				t.Fatalf("error %v, want %v", got.Err, c.want)
			}
			if calls := dst.asked(); (calls == 2) != c.renewed {
				t.Errorf("Ends was called %d times, renewed: %v", calls, c.renewed)
			}
			dst.with(part(0), func(l *destinationLog) {
				if l.stopped {
					t.Error("the log is stopped still")
				}
			})
		})
	}
}

func TestAlignWaitsForTheReplicas(t *testing.T) {
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			src, dst := logs(t, tens(40, 1), tens(20, 1))
			dst.with(part(0), func(l *destinationLog) { l.high = 15 })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan Aligned)
			go func() {
				done <- aligned(ctx, src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]
			}()
			select {
			case got := <-done:
				t.Fatalf("did not wait: %+v", got)
			case <-time.After(20 * time.Second):
			}
			if dst.asked() > 30 {
				t.Errorf("asked %d times in 20 s", dst.asked())
			}
			if comes {
				dst.with(part(0), func(l *destinationLog) { l.high = 20 })
			}
			got := <-done
			if comes && (got.Err != nil || got.Next != 20) {
				t.Errorf("got %d, %v", got.Next, got.Err)
			}
			if !comes && (!errors.Is(got.Err, cluster.ErrUnavailable) || !strings.Contains(got.Err.Error(), "15")) {
				t.Errorf("error %v, want unavailable and the high watermark", got.Err)
			}
		})
	}
}

func TestAlignErrorsOfOnePartitionStayThere_I10(t *testing.T) {
	src, dst := newSource(t, 1), newDestination(t)
	names := []string{"good", "no leader", "replaced", "no offsets", "no end", "diverged", "good too"}
	targets := make([]Target, len(names))
	for i := range names {
		src.create(part(i), 1)
		src.produce(part(i), 2, 10, 5)
		targets[i].Stretch.Partition = part(i)
	}
	src.logs[part(1)].leaderErr = cluster.ErrUnavailable
	targets[2].TopicID = cluster.TopicID{9}
	src.logs[part(3)].offsetsErr = cluster.ErrTimeout
	dst.with(part(4), func(l *destinationLog) { l.endErr, l.endsLeft = cluster.ErrUnreachable, -1 })
	dst.with(part(5), func(l *destinationLog) { l.end = 100 })
	want := []error{nil, cluster.ErrUnavailable, cluster.ErrTopicReplaced, cluster.ErrTimeout, cluster.ErrUnreachable, cluster.ErrDiverged, nil}
	for i, got := range aligned(t.Context(), src, dst, dst, targets) {
		if !errors.Is(got.Err, want[i]) || (got.Err == nil) != (want[i] == nil) {
			t.Errorf("%s: error %v, want %v", names[i], got.Err, want[i])
		}
		if got.Err == nil && got.Stretch.Partition != part(i) {
			t.Errorf("%s: answer for %v", names[i], got.Stretch.Partition)
		}
	}
	src.leadersErr = cluster.ErrUnreachable
	for _, got := range aligned(t.Context(), src, dst, dst, targets) {
		if !errors.Is(got.Err, cluster.ErrUnreachable) {
			t.Errorf("error %v, want unreachable", got.Err)
		}
	}
}
