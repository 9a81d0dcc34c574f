package zoo_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/transport/memory"
)

// unlike shows the first records that are not the same.
func unlike(want, got []batch.Record) string {
	for i := range max(len(want), len(got)) {
		a, b := want[i:min(i+1, len(want))], got[i:min(i+1, len(got))]
		if !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("record %d:\n%s", i, cmp.Diff(a, b))
		}
	}
	return ""
}

// What a batch's bytes say is what the zoo says of it.
func TestBatches(t *testing.T) {
	for seed := range uint64(4) {
		l := zoo.Generate(seed, zoo.Options{Start: int64(seed) * 1000, Trim: seed%2 == 1})
		at := l.Batches[0].Base
		for _, b := range l.Batches {
			h := batch.Header(b.Bytes)
			if err := h.Check(); err != nil || h.Length() != len(h) {
				t.Fatalf("%s: %v", b.Says, err)
			}
			if h.Base() != b.Base || h.Next() != b.Next || b.Base < at || b.Next <= b.Base || h.Control() != b.Marker {
				t.Fatalf("%s: [%d,%d) after %d, its header says [%d,%d)", b.Says, b.Base, b.Next, at, h.Base(), h.Next())
			}
			if h.Transactional() != (b.Transaction != nil) || b.Transaction != nil && b.Transaction.Producer != h.ProducerID() {
				t.Fatalf("%s: transaction %v", b.Says, b.Transaction)
			}
			at = b.Next
			var got []batch.Record
			err := batch.Decode(h, func(r batch.Record) error {
				r.Headers = slices.Clone(r.Headers)
				got = append(got, r)
				return nil
			})
			if b.Marker {
				got = nil
			}
			if d := unlike(b.Records, got); err != nil || d != "" {
				t.Fatalf("%s: %v (-want +got):\n%s", b.Says, err, d)
			}
		}
		if at != l.End || l.Start < l.Batches[0].Base || l.Start >= l.Batches[0].Next && len(l.Batches[0].Records) > 0 && seed%2 == 1 {
			t.Errorf("seed %d: the log is [%d,%d), the last batch ends at %d", seed, l.Start, l.End, at)
		}
	}
}

// A cluster that does not know the zoo reads the same.
func TestVisible(t *testing.T) {
	p := cluster.Partition{Topic: "zoo"}
	for seed := range uint64(4) {
		l := zoo.Generate(seed, zoo.Options{Trim: true, Settled: seed%3 == 0})
		c := memory.New(memory.Options{})
		defer c.Close()
		if err := c.CreateTopic(cluster.NewTopic{Name: "zoo", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		if err := c.Inject(p, l.Bytes()...); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteRecords(p, l.Start); err != nil {
			t.Fatal(err)
		}
		for _, committed := range []bool{false, true} {
			rs, err := c.Records(p, committed)
			if err != nil {
				t.Fatal(err)
			}
			var got []batch.Record
			for _, r := range rs {
				one := batch.Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
				for _, h := range r.Headers {
					one.Headers = append(one.Headers, batch.RecordHeader{Key: []byte(h.Key), Value: h.Value})
				}
				got = append(got, one)
			}
			if d := unlike(l.Visible(committed), got); d != "" {
				t.Fatalf("seed %d, committed %v (-want +got):\n%s", seed, committed, d)
			}
		}
		s, err := c.State(p)
		if err != nil || s.LastStable != l.LastStable() || (l.LastStable() == l.End) != (seed%3 == 0) {
			t.Errorf("seed %d: last stable %d, the zoo says %d of %d; %v", seed, s.LastStable, l.LastStable(), l.End, err)
		}
	}
}

// Nobody is missing.
func TestEverything(t *testing.T) {
	said := map[string]int{}
	var bare, null, dup, tombstone, large, interleaved int
	for seed := range uint64(4) {
		l := zoo.Generate(seed, zoo.Options{OldFormats: true, Batches: 300})
		open := map[int64]bool{}
		for _, b := range l.Batches {
			for word := range strings.SplitSeq(b.Says, ", ") {
				said[word]++
			}
			if b.Transaction != nil {
				open[b.Transaction.Producer] = !b.Marker
				n := 0
				for _, is := range open {
					if is {
						n++
					}
				}
				interleaved = max(interleaved, n)
				said[fmt.Sprint(b.Transaction.Fate)]++
			}
			for _, r := range b.Records {
				keys := map[string]bool{}
				for _, h := range r.Headers {
					if keys[string(h.Key)] {
						dup++
					}
					keys[string(h.Key)] = true
					if h.Value == nil {
						null++
					}
				}
				if r.Value == nil {
					tombstone++
				} else if len(r.Value) > 30_000 {
					large++
				}
				if r.Key != nil && len(r.Key) == 0 {
					bare++
				}
			}
		}
	}
	for _, want := range []string{
		"none", "gzip", "snappy", "lz4", "zstd", "transactional", "producer 4000", "open", "committed", "aborted", "empty batch",
		"head compacted", "tail compacted", "middle compacted", "compacted everywhere", "log append time", "delete horizon", "one record",
		"many records", "no timestamps", "of the future", "more than 24.8 days apart", "of 1970 and of now", "as far apart as it goes", "descending",
		"message of format 0", "message of format 1", "format 0", "format 1", "compacted", "a large value",
	} {
		if said[want] == 0 {
			t.Errorf("no %q in four logs", want)
		}
	}
	if bare == 0 || null == 0 || dup == 0 || tombstone == 0 || large == 0 || interleaved < 3 {
		t.Errorf("%d empty keys, %d null header values, %d repeated headers, %d tombstones, %d large values, %d transactions at once",
			bare, null, dup, tombstone, large, interleaved)
	}
}

func TestSameSeed(t *testing.T) {
	o := zoo.Options{OldFormats: true, Trim: true}
	if !reflect.DeepEqual(zoo.Generate(7, o), zoo.Generate(7, o)) {
		t.Error("one seed makes two logs")
	}
	if reflect.DeepEqual(zoo.Generate(7, o), zoo.Generate(8, o)) {
		t.Error("two seeds make the same log")
	}
}

func TestDenseAndPlain(t *testing.T) {
	l := zoo.Generate(3, zoo.Options{Dense: true, Plain: true, Start: 500})
	offsets := l.Offsets(true)
	for i, o := range offsets {
		if o != 500+int64(i) {
			t.Fatalf("record %d is at offset %d", i, o)
		}
	}
	if int64(len(offsets)) != l.End-500 {
		t.Errorf("%d records up to %d", len(offsets), l.End)
	}
}

// A batch that says less than it holds passes a broker's checks.
func TestMisnumbered(t *testing.T) {
	h := batch.Header(zoo.Misnumbered(30, "x", "y"))
	if err := h.Check(); err != nil || h.Next() != 31 || h.Count() != 2 {
		t.Errorf("%v, next %d, count %d", err, h.Next(), h.Count())
	}
}
