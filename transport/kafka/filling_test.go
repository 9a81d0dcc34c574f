package kafka

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFillingShown(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	grown := func(adds ...[4]int64) (f filling) { // from, to, sent and landed in milliseconds
		for _, a := range adds {
			f.add(a[0], a[1], at(time.Duration(a[2])*time.Millisecond), at(time.Duration(a[3])*time.Millisecond))
		}
		return f
	}
	for name, c := range map[string]struct {
		f    filling
		want fetcher.Filling
	}{
		"not begun":                 {filling{from: 100, at: 100}, fetcher.Filling{From: 100, To: 1100, At: 100, Rate: 50, Bytes: 2000, Until: at(20 * time.Second)}},
		"too early to tell":         {grown([4]int64{100, 200, 0, 100}), fetcher.Filling{From: 100, To: 1100, At: 200, Rate: 50, Bytes: 2000, Until: at(18 * time.Second)}},
		"measured":                  {grown([4]int64{100, 200, 0, 500}, [4]int64{200, 350, 500, 1000}), fetcher.Filling{From: 100, To: 1100, At: 350, Rate: 250, Measured: true, Bytes: 2000, Until: at(3 * time.Second)}},
		"another one":               {grown([4]int64{0, 50, 0, 500}, [4]int64{100, 200, 500, 1500}), fetcher.Filling{From: 100, To: 1100, At: 200, Rate: 100, Measured: true, Bytes: 2000, Until: at(9 * time.Second)}},
		"one that touches, later":   {grown([4]int64{0, 100, 0, 500}, [4]int64{100, 200, 5000, 6000}), fetcher.Filling{From: 100, To: 1100, At: 200, Rate: 100, Measured: true, Bytes: 2000, Until: at(9 * time.Second)}},
		"slower than one in second": {grown([4]int64{100, 101, 0, 10_000}), fetcher.Filling{From: 100, To: 1100, At: 101, Rate: 1, Measured: true, Bytes: 2000, Until: at(999 * time.Second)}},
	} {
		if diff := cmp.Diff(c.want, c.f.shown(1100, cost{50, 2}, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What an offset costs is what it takes.
func TestCosts(t *testing.T) {
	for name, c := range map[string]struct {
		cost cost
		b    []byte
		n    float64
	}{
		"phantoms": {phantomCost, batch.AppendPhantoms(nil, phantomRecords, now(), nil), phantomRecords},
		"fillers":  {fillerCost, new(fillers).of(fillerRecords).Append(nil, now()), fillerRecords},
	} {
		if got := float64(len(c.b)) / c.n; math.Abs(got-c.cost.bytes) > 0.05*got {
			t.Errorf("%s take %.2f bytes an offset, said are %.2f", name, got, c.cost.bytes)
		}
	}
}

// slowly has each request of a kind wait: let lets one go, if one waits, and all lets
// them go from now on.
func slowly(t *testing.T, f *kfake.Cluster, key kmsg.Key) (let, all func()) {
	next, open := make(chan struct{}), make(chan struct{})
	all = sync.OnceFunc(func() { close(open) })
	t.Cleanup(all)
	f.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		select {
		case <-next:
		case <-open:
		}
		return nil, nil, false
	})
	let = func() {
		select {
		case next <- struct{}{}:
		default:
		}
	}
	return let, all
}

// A hole of three runs is one to whoever looks, and is seen to be filled.
func TestFillingOfHoles(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(*Config)) {
		const long = 3 * phantomRecords
		f := fake(t, 1, "t", 1)
		c := open(t, f.ListenAddrs(), way)
		if g, ok := c.Filling(p0); ok {
			t.Errorf("before anything: %v", g)
		}
		beginAt(t, c, stretchOf(p0))
		mustAppend(t, c, p0, batchesAt(0, 1, 5, now()))
		key := kmsg.WriteTxnMarkers
		if c.cfg.GapFill == GapPhantoms {
			key = kmsg.Produce
		}
		let, all := slowly(t, f, key)
		got := make(chan fetcher.Result, 3)
		done := func(r fetcher.Result) { got <- r }
		c.Append(p0, []cluster.Batch{hole(5, 10), hole(10, 5+long)}, nil, done)
		c.Append(p0, append([]cluster.Batch{hole(5+long, 5+2*long)}, batchesAt(5+2*long, 1, 5, now())...), nil, done)
		c.Append(p0, []cluster.Batch{hole(10+2*long, 15+2*long)}, nil, done)
		look := func() fetcher.Filling {
			g, ok := c.Filling(p0)
			if !ok || g.From != 5 || g.To != 5+2*long || g.At < 5 || g.Rate < 1 || g.Bytes == 0 || g.Until.IsZero() {
				t.Fatalf("%+v, %v", g, ok)
			}
			return g
		}
		if g := look(); g.At != 5 || g.Measured {
			t.Errorf("nothing has landed: %+v", g)
		}
		for range 3 {
			before := look().At
			until(t, func() bool { let(); return look().At > before })
		}
		all()
		for range 3 {
			if r := wait(t, got); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if g, ok := c.Filling(p0); ok {
			t.Errorf("after it: %+v", g)
		}
		holds(t, c, p0, cluster.Span{From: 0, To: 5}, cluster.Span{From: 5 + 2*long, To: 10 + 2*long})
	})
}

// The start of a log: the estimate before, the measure while it runs, nothing after.
func TestFillingOfAStart(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	to := int64(10 * fillerRecords)
	let, _ := slowly(t, f, kmsg.Produce)
	ended := make(chan error, 1)
	go func() { ended <- c.StartAt(within(t, 30*time.Second), stretchOf(p0), to, nil) }()
	var seen []int64
	until(t, func() bool { _, ok := c.Filling(p0); return ok })
	for g, ok := c.Filling(p0); ok; g, ok = c.Filling(p0) {
		if g.From != 0 || g.To != to || g.Bytes != int64(float64(to)*fillerCost.bytes) || g.Until.IsZero() {
			t.Fatalf("%+v", g)
		}
		seen = append(seen, g.At)
		until(t, func() bool { let(); h, ok := c.Filling(p0); return !ok || h.At > g.At })
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(seen) || len(seen) < 4 || seen[0] != 0 || seen[1]%fillerRecords != 0 {
		t.Errorf("seen at %v", seen)
	}
	if g, ok := c.Filling(p0); ok {
		t.Errorf("after it: %+v", g)
	}
}

// Who is refused learns what it would cost.
func TestStartTooFarSaysTheCost(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs(), func(cfg *Config) { cfg.MaxStartFill = 1000 })
	err := c.StartAt(context.Background(), stretchOf(p0), 4_000_000_000, nil)
	if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "about 2098 MB, 8m20s") {
		t.Errorf("%v", err)
	}
	if g, ok := c.Filling(p0); ok {
		t.Errorf("%+v", g)
	}
}
