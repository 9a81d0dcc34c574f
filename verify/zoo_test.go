package verify_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/zoo"
	"github.com/clustermirror/mirror/verify"
)

// fates counts the records of a log by what became of their transaction.
func fates(l *zoo.Log) (visible, aborted, open int64) {
	for _, b := range l.Batches {
		for _, r := range b.Records {
			switch {
			case r.Offset < l.Start:
			case b.Transaction == nil || b.Transaction.Fate == zoo.Committed:
				visible++
			case b.Transaction.Fate == zoo.Aborted:
				aborted++
			default:
				open++
			}
		}
	}
	return visible, aborted, open
}

func TestZooTwice(t *testing.T) {
	for seed := range uint64(4) {
		l := animals(seed, zoo.Options{Start: 100, Trim: seed%2 == 0, Settled: seed%3 == 0, Batches: 120})
		source, destination := loaded(t, l.Start, l.Bytes()), loaded(t, l.Start, l.Bytes())
		for _, o := range []verify.Options{{Strict: true}, {Strict: true, Checksums: true}, {ChunkBytes: 1}} {
			r := compare(t, source, destination, o)
			visible, aborted, open := fates(l)
			if !r.Equal || !r.EndsEqual || r.Records != visible || r.Aborted != aborted || r.Undecided != open {
				t.Errorf("seed %d: want %d records, %d aborted, %d undecided, got %d, %d, %d: %v", seed, visible, aborted, open, r.Records, r.Aborted, r.Undecided, r)
			}
		}
	}
}

// A copy by produce requests is the same to those who read committed records, and
// so is its checksum.
func TestZooCopied(t *testing.T) {
	for seed := range uint64(4) {
		for _, how := range []filling{holes, phantoms, markers, mixed} {
			l := animals(seed, zoo.Options{Trim: seed%2 == 1, Settled: seed%4 == 0, Batches: 100})
			source := loaded(t, l.Start, l.Bytes())
			destination := loaded(t, l.Start, copied(rand.New(rand.NewPCG(seed, 1)), l, how))
			r := compare(t, source, destination, verify.Options{Checksums: true})
			if !r.Equal || r.Records != int64(len(l.Visible(true))) {
				t.Errorf("seed %d, %v: want %d records: %v, first difference %v", seed, how, len(l.Visible(true)), r, r.Differences)
			}
			if r.SourceSum.Sum != r.DestinationSum.Sum || r.SourceSum.Records != r.Records || r.DestinationSum.Records != r.Records {
				t.Errorf("seed %d, %v: checksums %+v and %+v", seed, how, r.SourceSum, r.DestinationSum)
			}
			if l.LastStable() == l.End && (r.LeftOut == 0) != (r.Noted == 0) && how == markers {
				t.Errorf("seed %d: %d left out, %d noted", seed, r.LeftOut, r.Noted)
			}
		}
	}
}

// Message formats before 2 are what consumers see of them.
func TestZooOldFormats(t *testing.T) {
	for seed := range uint64(4) {
		l := animals(seed, zoo.Options{OldFormats: true, Trim: seed%2 == 1, Settled: true, Batches: 70})
		source := plainly(l)
		destination := loaded(t, l.Start, copied(rand.New(rand.NewPCG(seed, 2)), l, mixed))
		for _, o := range []verify.Options{{Checksums: true}, {ChunkBytes: 1}} {
			r := compare(t, source, destination, o)
			if !r.Equal || r.Records != int64(len(l.Visible(true))) || r.SourceLog.OldFormat < 10 {
				t.Errorf("seed %d: want %d records: %v, first difference %v, %+v", seed, len(l.Visible(true)), r, r.Differences, r.SourceLog)
			}
			if r := compare(t, source, source, o); !r.Equal || !r.EndsEqual {
				t.Errorf("seed %d: with itself: %v", seed, r)
			}
		}
	}
}

// A bit that flipped in a message of an old format is found, wherever it is.
func TestOldFormatsCorrupt(t *testing.T) {
	l := animals(5, zoo.Options{OldFormats: true, Batches: 30, Plain: true})
	r := rand.New(rand.NewPCG(1, 1))
	found := 0
	for i, b := range l.Batches {
		if !strings.Contains(b.Says, "format") {
			continue
		}
		other := plainly(l)
		other.batches = append([]zoo.Batch(nil), l.Batches...)
		spoilt := append([]byte(nil), b.Bytes...)
		spoilt[17+r.IntN(len(spoilt)-17)] ^= 1 << r.IntN(8)
		other.batches[i].Bytes = spoilt
		_, err := verify.Partition(t.Context(), plainly(l), other, zoos, nil)
		if !errors.Is(err, cluster.ErrCorrupt) || !strings.Contains(err.Error(), "destination: zoo-0 offset ") {
			t.Errorf("%s: %v", b.Says, err)
		}
		found++
	}
	if found < 5 {
		t.Errorf("%d old messages", found)
	}
}

// The checksum of a log is that of its halves, and another where one bit is.
func TestChecksumsJoin(t *testing.T) {
	l := animals(1, zoo.Options{Settled: true})
	c := loaded(t, l.Start, l.Bytes())
	middle := l.Batches[len(l.Batches)/2].Base + 1
	whole := compare(t, c, c, verify.Options{Checksums: true}).SourceSum
	head := &plain{cluster.Offsets{LogStart: l.Start, HighWatermark: middle}, l.Batches}
	first := compare(t, c, head, verify.Options{Checksums: true}).SourceSum
	tail := &plain{cluster.Offsets{LogStart: middle, HighWatermark: l.End}, l.Batches}
	second := compare(t, c, tail, verify.Options{Checksums: true}).SourceSum
	joined, err := first.Join(*second)
	if err != nil || joined != *whole || first.Sum == whole.Sum || first.Records == 0 || second.Records == 0 {
		t.Errorf("%v: %+v and %+v are %+v, want %+v", err, first, second, joined, whole)
	}
	if _, err := second.Join(*first); err == nil {
		t.Error("spans that do not touch are joined")
	}
	text, err := whole.Sum.MarshalText()
	var back verify.Sum
	if err != nil || back.UnmarshalText(text) != nil || back != whole.Sum || back.UnmarshalText(text[1:]) == nil {
		t.Errorf("%s: %v", text, err)
	}
}

// One side alone gives the checksum that a comparison gives, on whatever copy.
func TestTotal(t *testing.T) {
	for seed := range uint64(3) {
		l := animals(seed, zoo.Options{Trim: seed%2 == 1, Batches: 100, Settled: seed != 2})
		_, _, open := fates(l)
		if (open > 0) != (seed == 2) {
			t.Fatalf("seed %d: %d records of open transactions", seed, open)
		}
		source := loaded(t, l.Start, l.Bytes())
		destination := loaded(t, l.Start, copied(rand.New(rand.NewPCG(seed, 6)), l, mixed))
		for _, o := range []*verify.Options{nil, {ChunkBytes: 1}, {Sample: &verify.Sample{Fraction: 0.5}}} {
			a, err := verify.Total(t.Context(), source, zoos, o)
			if err != nil {
				t.Fatal(err)
			}
			if o == nil {
				o = &verify.Options{}
			}
			o.Checksums = true
			if want := *compare(t, source, source, *o).SourceSum; a != want || o.Sample == nil && a.Undecided != open {
				t.Errorf("seed %d: %+v, want %+v", seed, a, want)
			}
			b, err := verify.Total(t.Context(), destination, zoos, o)
			if err != nil || l.LastStable() == l.End && (a.Sum != b.Sum || a.Records != b.Records) || a.Records == 0 {
				t.Errorf("seed %d: %v: %+v and %+v", seed, err, a, b)
			}
		}
	}
	l := animals(1, zoo.Options{Batches: 20})
	bad := plainly(l)
	bad.batches = append([]zoo.Batch(nil), l.Batches...)
	spoilt := append([]byte(nil), bad.batches[9].Bytes...)
	spoilt[len(spoilt)-1] ^= 1
	bad.batches[9].Bytes = spoilt
	if _, err := verify.Total(t.Context(), bad, zoos, nil); !errors.Is(err, cluster.ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprint("offset ", bad.batches[9].Base)) {
		t.Error(err)
	}
}

// What a sample looks at is the same on both sides, whatever the batches.
func TestSample(t *testing.T) {
	l := animals(2, zoo.Options{Batches: 450, Settled: true, MaxValue: 1000})
	source := loaded(t, l.Start, l.Bytes())
	destination := loaded(t, l.Start, copied(rand.New(rand.NewPCG(1, 2)), l, mixed))
	looked := map[string]bool{}
	for seed := range uint64(4) {
		o := verify.Options{Sample: &verify.Sample{Fraction: 0.2, Seed: seed}, Checksums: true}
		r := compare(t, source, destination, o)
		if !r.Equal || r.Sampled <= 0 || r.Sampled >= r.Compared.Len()/2 || r.Records == 0 || r.Records > r.Sampled {
			t.Errorf("seed %d: %d of %v offsets, %d records: %v", seed, r.Sampled, r.Compared, r.Records, r)
		}
		if again := compare(t, source, source, o); r.SourceSum.Sum != again.SourceSum.Sum || r.SourceSum.Sum != r.DestinationSum.Sum {
			t.Errorf("seed %d: sums %v, %v, %v", seed, r.SourceSum, r.DestinationSum, again.SourceSum)
		}
		looked[r.SourceSum.Sum.String()] = true
	}
	if len(looked) < 3 {
		t.Errorf("4 seeds look at %d samples", len(looked))
	}
}

func TestSpan(t *testing.T) {
	l := animals(4, zoo.Options{Settled: true})
	c := loaded(t, l.Start, l.Bytes())
	at := l.Batches[len(l.Batches)/2].Base + 1
	for name, o := range map[string]struct{ given, want cluster.Span }{
		"from the middle of a batch": {cluster.Span{From: at, To: math.MaxInt64}, cluster.Span{From: at, To: l.End}},
		"to the middle of a batch":   {cluster.Span{From: 0, To: at}, cluster.Span{From: l.Start, To: at}},
		"within":                     {cluster.Span{From: at, To: at + 40}, cluster.Span{From: at, To: at + 40}},
		"before the start":           {cluster.Span{From: -9, To: -1}, cluster.Span{From: l.Start, To: l.Start}},
		"behind the end":             {cluster.Span{From: l.End + 5, To: l.End + 9}, cluster.Span{From: l.End, To: l.End}},
	} {
		r := compare(t, c, c, verify.Options{Span: within(o.given.From, o.given.To, nil)})
		if r.Compared != o.want || !r.Equal || (r.Records+r.Aborted == 0) != (o.want.Len() == 0) {
			t.Errorf("%s: %v", name, r)
		}
		visible := int64(0)
		for _, offset := range l.Offsets(true) {
			if offset >= o.want.From && offset < o.want.To {
				visible++
			}
		}
		if r.Records != visible {
			t.Errorf("%s: %d records, want %d", name, r.Records, visible)
		}
	}
	boom := errors.New("boom")
	if _, err := verify.Partition(t.Context(), c, c, zoos, &verify.Options{Span: within(0, 0, boom)}); !errors.Is(err, boom) {
		t.Error(err)
	}
}

func (f filling) String() string { return [...]string{"holes", "phantoms", "markers", "mixed"}[f] }

// A transaction whose marker stands behind the common range counts as its marker
// says; one without a marker is undecided.
func TestMarkersBehindTheRange(t *testing.T) {
	l := animals(9, zoo.Options{Batches: 150, Settled: true})
	r := rand.New(rand.NewPCG(3, 3))
	for range 4 {
		to := l.Batches[50+r.IntN(len(l.Batches)-50)].Base
		source := loaded(t, l.Start, l.Bytes())
		part := *l
		part.Batches = nil
		for _, b := range l.Batches {
			if b.Next <= to {
				part.Batches = append(part.Batches, b)
			}
		}
		part.End = to
		destination := &plain{cluster.Offsets{LogStart: l.Start, HighWatermark: to}, part.Batches}
		got := compare(t, source, destination, verify.Options{})
		var visible int64
		for _, b := range part.Batches {
			if b.Transaction == nil || b.Transaction.Fate == zoo.Committed {
				visible += int64(len(b.Records))
			}
		}
		// Those that are committed only behind the end are not there yet.
		if !got.Equal || got.Records > visible {
			t.Errorf("to %d: %d records of %d: %v", to, got.Records, visible, got)
		}
		whole := &plain{cluster.Offsets{LogStart: l.Start, HighWatermark: to}, nil}
		for _, b := range copied(r, &part, mixed) {
			whole.batches = append(whole.batches, asBatch(b))
		}
		if got := compare(t, source, whole, verify.Options{}); !got.Equal || got.Records != visible {
			t.Errorf("copy to %d: want %d records: %v %s", to, visible, got, fmt.Sprint(got.Differences))
		}
	}
}
