package transporttest

import (
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

var committedChecks = []check{
	{"committed fetches", needsBegin, committedFetches},
	{"reading what is committed", func(e End) string {
		if missing := needsBegin(e); missing != "" {
			return missing
		}
		if _, ok := e.Source.(fetcher.CommittedReader); !ok {
			return "CommittedReader"
		}
		return ""
	}, committedReads},
}

func needsBegin(e End) string {
	if missing := needsSource(e); missing != "" {
		return missing
	}
	if e.Begin == nil {
		return "Begin"
	}
	return ""
}

// mixed is a partition with a plain record at 0, an aborted transaction in [1,4) that
// ends at 4 and a committed one at 2, that ends at 5; a plain record at 6, and at 7 the
// beginning of one that is open, with a plain record behind it.
func (k *kit) mixed() (cluster.Partition, Transaction) {
	k.Helper()
	p := k.topic(1)[0]
	k.feed(p, k.batch(0, 1))
	aborted, committed, open := k.end.Begin(k.TB, p), k.end.Begin(k.TB, p), k.end.Begin(k.TB, p)
	aborted.Send(1)
	committed.Send(1)
	aborted.Send(1)
	aborted.End(false)
	committed.End(true)
	k.feed(p, k.batch(6, 1))
	open.Send(1)
	k.feed(p, k.batch(8, 1))
	return p, open
}

// visible are the offsets that readers of committed records see in an answer, by Kafka's
// own rule (CompletedFetch).
func visible(records []byte, aborted []fetcher.AbortedTransaction, from int64) (offsets []int64) {
	out := map[int64]bool{}
	for w := batch.Walk(records); w.Next(); {
		h := w.Header()
		for _, a := range aborted {
			if a.First < h.Next() && a.First >= 0 {
				out[a.Producer] = true
			}
		}
		aborted = slices.DeleteFunc(slices.Clone(aborted), func(a fetcher.AbortedTransaction) bool { return a.First < h.Next() })
		if h.Control() {
			if kind, _ := h.Marker(); kind == batch.MarkerAbort {
				delete(out, h.ProducerID())
			}
			continue
		}
		if h.Transactional() && out[h.ProducerID()] {
			continue
		}
		for o := max(h.Base(), from); o < h.Next(); o++ {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

// committedFetches: an answer ends at the last stable offset, which it names, and says
// of every aborted transaction that has records in it that it is; also when it begins
// in the middle of one. It comes when a transaction ends.
func committedFetches(k *kit) {
	p, open := k.mixed()
	for from, want := range map[int64][]int64{0: {0, 2, 6}, 1: {2, 6}, 2: {2, 6}, 3: {6}, 4: {6}, 5: {6}, 7: nil} {
		s, w := k.open(p)
		w.Offset = from
		req := request(patience, w)
		req.Committed = true
		got := k.fetch(s, req)
		if len(got) != 1 || got[0].Err != nil || got[0].HighWatermark != 9 || got[0].LastStable != 7 {
			k.Fatalf("from %d: %s, last stable offset %d, want 7", from, brief(got), got[0].LastStable)
		}
		if seen := visible(got[0].Records, got[0].Aborted, from); !slices.Equal(seen, want) {
			k.Errorf("from %d readers see %v, want %v: aborted are %+v", from, seen, want, got[0].Aborted)
		}
		s.Close()
	}
	s, w := k.open(p)
	w.Offset = 7
	req := request(patience, w)
	req.Committed = true
	k.fetch(s, req)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.rest()
		open.End(true)
	}()
	defer func() { <-ended }()
	again := request(20 * time.Second)
	again.Committed = true
	for began := time.Now(); ; {
		got := k.fetch(s, again)
		if len(got) == 1 && got[0].LastStable == 10 {
			if seen := visible(got[0].Records, got[0].Aborted, 7); !slices.Equal(seen, []int64{7, 8}) {
				k.Errorf("behind the open transaction readers see %v", seen)
			}
			return
		}
		if time.Since(began) > 15*time.Second {
			k.Fatalf("a commit did not end the wait: %s", brief(got))
		}
	}
}

// committedReads are committedFetches for single places.
func committedReads(k *kit) {
	p, open := k.mixed()
	reader := k.from.(fetcher.CommittedReader)
	for from, want := range map[int64][]int64{0: {0, 2, 6}, 1: {2, 6}, 3: {6}, 5: {6}, 7: nil, 8: nil} {
		b, aborted, err := reader.ReadCommitted(k.ctx, p, from, 1<<20)
		if err != nil {
			k.Fatalf("from %d: %v", from, err)
		}
		if seen := visible(b, aborted, from); !slices.Equal(seen, want) {
			k.Errorf("from %d readers see %v, want %v: aborted are %+v", from, seen, want, aborted)
		}
	}
	open.End(false)
	b, aborted, err := reader.ReadCommitted(k.ctx, p, 7, 1<<20)
	if seen := visible(b, aborted, 7); err != nil || !slices.Equal(seen, []int64{8}) {
		k.Errorf("behind the open transaction, when it is aborted, readers see %v: %v", seen, err)
	}
}
