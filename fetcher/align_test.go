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

func TestAlignComparesEnds_I2(t *testing.T) {
	type bounds struct{ start, end int64 }
	for _, c := range []struct {
		name         string
		theirs, ours bounds
		owned, gaps  bool
		err          error
		span         cluster.Span
		how          string
	}{
		{name: "both empty", how: "empty destination"},
		{name: "empty, source from 0", theirs: bounds{0, 100}, how: "empty destination"},
		{name: "empty, source from 50", theirs: bounds{50, 100}, how: "empty destination, made to start at 50"},
		{name: "empty above the source's start", theirs: bounds{0, 100}, ours: bounds{70, 70}, how: "empty destination"},
		{name: "empty below the source's start, had records", theirs: bounds{50, 100}, ours: bounds{30, 30}, owned: true, how: "empty destination, made to start at 50"},
		{name: "empty below the source's start, had records, gaps", theirs: bounds{50, 100}, ours: bounds{30, 30}, owned: true, gaps: true, how: "the source's log starts behind it, at 50"},
		{name: "prefix", theirs: bounds{0, 100}, ours: bounds{0, 100}, how: "records around the destination's end are the source's"},
		{name: "prefix of a trimmed log", theirs: bounds{50, 100}, ours: bounds{20, 90}, how: "records around the destination's end are the source's"},
		{name: "meets the source's start, nothing known", theirs: bounds{50, 100}, ours: bounds{0, 50}, err: cluster.ErrNoPosition, span: cluster.Span{From: 0, To: 50}},
		{name: "meets the source's start, known", theirs: bounds{50, 100}, ours: bounds{0, 50}, owned: true, how: "logs meet at the destination's end"},
		{name: "ends before the source starts", theirs: bounds{50, 100}, ours: bounds{0, 40}, err: cluster.ErrRetention, span: cluster.Span{From: 40, To: 50}},
		{name: "ends before the source starts, known", theirs: bounds{50, 100}, ours: bounds{0, 40}, owned: true, err: cluster.ErrRetention, span: cluster.Span{From: 40, To: 50}},
		{name: "ends before the source starts, gaps, nothing known", theirs: bounds{50, 100}, ours: bounds{0, 40}, gaps: true, err: cluster.ErrNoPosition, span: cluster.Span{From: 0, To: 40}},
		{name: "ends before the source starts, gaps, known", theirs: bounds{50, 100}, ours: bounds{0, 40}, owned: true, gaps: true, how: "the source's log starts behind it, at 50"},
		{name: "longer than the source (C1.9)", theirs: bounds{0, 100}, ours: bounds{0, 120}, err: cluster.ErrDiverged, span: cluster.Span{From: 100, To: 120}},
		{name: "longer than the source, known", theirs: bounds{0, 100}, ours: bounds{0, 120}, owned: true, err: cluster.ErrTruncated, span: cluster.Span{From: 100, To: 120}},
		{name: "empty beyond the source", theirs: bounds{0, 100}, ours: bounds{120, 120}, err: cluster.ErrDiverged, span: cluster.Span{From: 100, To: 120}},
		{name: "source was emptied", ours: bounds{0, 30}, err: cluster.ErrDiverged, span: cluster.Span{From: 0, To: 30}},
		{name: "source has nothing below our start", theirs: bounds{0, 20}, ours: bounds{50, 100}, owned: true, err: cluster.ErrTruncated, span: cluster.Span{From: 20, To: 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := logs(t, tens(c.theirs.end, 0)[c.theirs.start/10:], tens(c.ours.end, 0)[c.ours.start/10:])
			src.logs[part(0)].start = c.theirs.start
			dst.traits.Gaps = c.gaps
			dst.with(part(0), func(l *destinationLog) { l.start, l.end, l.ours = c.ours.start, c.ours.end, c.owned })
			got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}, Aligned: c.owned}})[0]
			if !errors.Is(got.Err, c.err) || (got.Err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", got.Err, c.err)
			}
			var at *cluster.OffsetError
			switch {
			case got.Cut != -1:
				t.Errorf("cut at %d", got.Cut)
			case c.err != nil && (!errors.As(got.Err, &at) || at.Span != c.span):
				t.Errorf("error %v, want the span %v", got.Err, c.span)
			case c.err == nil && !strings.HasPrefix(got.How, c.how) || c.err == nil && c.how == "":
				t.Errorf("how %q, want %q", got.How, c.how)
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
		{"hole in ours", tens(60, 0), [][]byte{plain(0, 10, 5, 0), plain(50, 10, 5, 0)}, 10, 0},
		{"hole at the source", [][]byte{plain(0, 10, 5, 0), plain(50, 10, 5, 0)}, tens(60, 0), 10, 0},
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
	t.Run("filling takes longer than alignment may", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src, dst := logs(t, nil, nil)
			src.logs[part(0)].start, dst.filling = 7, time.Hour
			short, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got := aligned(short, src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}, Context: t.Context()}})[0]
			if got.Err != nil || got.Next != 7 {
				t.Errorf("next %d, %v", got.Next, got.Err)
			}
		})
	})
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
