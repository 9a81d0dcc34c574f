package lead

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// transactional is a batch of a producer's transaction.
func transactional(base, producer int64, epoch int16) cluster.Batch {
	return encoded(batch.Spec{
		Base: base, LeaderEpoch: 2, Attributes: batch.AttrTransactional, Producer: &batch.Producer{ID: producer, Epoch: epoch},
		Records: []batch.Record{{Offset: base, Timestamp: 1, Value: []byte("v")}},
	})
}

// marker ends a producer's transaction.
func marker(base, producer int64, kind byte) cluster.Batch {
	return encoded(batch.Spec{
		Base: base, LeaderEpoch: 2, Attributes: batch.AttrTransactional | batch.AttrControl, Producer: &batch.Producer{ID: producer},
		Records: []batch.Record{{Offset: base, Timestamp: 1, Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 0}}},
	})
}

func encoded(s batch.Spec) cluster.Batch {
	raw := batch.Encode(s)
	h := batch.Header(raw)
	return cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: 1, Bytes: raw}
}

func TestLastStable(t *testing.T) {
	p := led(t, 0, func(c *Config) { c.Open = []OpenTxn{{Producer: 9, Epoch: 4, First: 0}}; c.LogStart = 0 })
	var got []outcome
	appendTo(p, &got,
		transactional(0, 5, 1), few(1, 1, 2)[0], transactional(2, 6, 0), transactional(3, 5, 2), marker(4, 5, 1), marker(5, 9, 0), marker(6, 6, 0))
	for _, c := range []struct{ high, stable int64 }{
		{4, 0}, // all of them are open
		{5, 0}, // 5 has ended, 9 has not
		{6, 2}, // 6 is open from 2 on
		{7, 7},
	} {
		ask(p, 1, c.high, -1)
		if a := ask(p, 2, c.high, -1); a.HighWatermark != c.high || a.LastStable != c.stable {
			t.Errorf("high watermark %d, last stable %d, want %d and %d", a.HighWatermark, a.LastStable, c.high, c.stable)
		}
	}
	if open := p.Open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
	p.Truncate(5, func(error) {})
	want := []OpenTxn{{Producer: 9, Epoch: 4, First: 0}, {Producer: 6, First: 2}}
	if diff := cmp.Diff(want, p.Open()); diff != "" {
		t.Errorf("after a cut (-want +got):\n%s", diff)
	}
	if s := p.State(); s.LastStable != 0 || s.OpenUnknown {
		t.Errorf("after a cut: %+v", s)
	}
	p.Reopen(nil)
	if s := p.State(); s.LastStable != 5 {
		t.Errorf("after Reopen: %+v", s)
	}
}

// FuzzTransactions compares with what a look at the whole log says.
func FuzzTransactions(f *testing.F) {
	for s := range uint64(200) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		dice := rand.New(rand.NewPCG(seed, 2))
		tx := newTransactions(nil)
		var log []batch.Header
		high := int64(0)
		for range 400 {
			end := int64(len(log))
			switch n := dice.IntN(20); {
			case n < 9:
				log = append(log, batch.Header(transactional(end, dice.Int64N(6), 0).Bytes))
				tx.note(log[end])
			case n < 15:
				log = append(log, batch.Header(marker(end, dice.Int64N(6), byte(dice.IntN(2))).Bytes))
				tx.note(log[end])
			case n < 16:
				log = append(log, batch.Header(few(end, 1, 2)[0].Bytes))
				tx.note(log[end])
			case n < 19:
				high = min(end, high+dice.Int64N(10))
			default:
				cut := max(0, end-dice.Int64N(30))
				log, high = log[:cut], min(high, cut)
				tx.cut(cut)
			}
			open, stable := byForce(log, high)
			if got := tx.lastStable(high); got != stable {
				t.Fatalf("seed %d: last stable %d of %d batches below %d, want %d", seed, got, len(log), high, stable)
			}
			if diff := cmp.Diff(open, tx.all()); diff != "" || tx.unknown {
				t.Fatalf("seed %d: open (-want +got):\n%s", seed, diff)
			}
		}
	})
}

// byForce looks at a whole log: its open transactions, and the last stable offset.
func byForce(log []batch.Header, high int64) (open []OpenTxn, stable int64) {
	stable = high
	first := map[int64]int64{}
	for _, h := range log {
		at, is := first[h.ProducerID()]
		switch {
		case !h.Transactional():
		case !h.Control() && !is:
			first[h.ProducerID()] = h.Base()
		case h.Control() && is:
			delete(first, h.ProducerID())
			if h.Base() >= high {
				stable = min(stable, at)
			}
		}
	}
	for id, at := range first {
		open = append(open, OpenTxn{Producer: id, First: at})
		stable = min(stable, at)
	}
	slices.SortFunc(open, func(a, b OpenTxn) int { return int(a.First - b.First) })
	return open, stable
}

// What is remembered of transactions that are over is bounded, and a cut that goes farther
// says so.
func TestRememberedTransactions(t *testing.T) {
	tx := newTransactions([]OpenTxn{{Producer: 1 << 40, First: 0}})
	const n = 10 * remembered
	for i := range int64(n) {
		tx.note(batch.Header(transactional(2*i, i, 0).Bytes))
		tx.note(batch.Header(marker(2*i+1, i, 1).Bytes))
		tx.lastStable(2 * i)
	}
	if len(tx.list)+len(tx.over) > 4*remembered {
		t.Errorf("%d are held and %d remembered", len(tx.list), len(tx.over))
	}
	tx.cut(2*n - 4*remembered/2)
	if tx.unknown {
		t.Error("a cut within what is remembered is not known")
	}
	if tx.cut(3); !tx.unknown {
		t.Error("a cut beyond what is remembered is not noticed")
	}
	if open := tx.all(); len(open) != 1 || open[0].Producer != 1<<40 {
		t.Errorf("open after the cut: %v", open)
	}
}
