package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
)

var sessionChecks = []check{
	{"fetch gives what was produced", needsSource, fetchAll},
	{"fetch is incremental and waits", needsSource, incremental},
	{"fetch gives way to Close and ctx", needsSource, giveWay},
	{"fetch keeps its limits", needsSource, fetchLimits},
	{"fetch refuses what it has to", needsSource, fetchRefuses},
	{"fetch at a leader that was", func(e End) string {
		if missing := needsSource(e); missing != "" {
			return missing
		}
		if e.Elect == nil {
			return "Elect"
		}
		return ""
	}, movedLeader},
}

// patience is what a waiting fetch is given.
const patience = 300 * time.Millisecond

// open is a session with a partition's leader and what to ask of it.
func (k *kit) open(p cluster.Partition) (fetcher.Session, fetcher.Want) {
	k.Helper()
	l := k.leader(p)
	s, err := k.from.Open(k.ctx, l.Broker)
	if err != nil {
		k.Fatalf("session with broker %d: %v", l.Broker, err)
	}
	k.Cleanup(func() { s.Close() })
	return s, fetcher.Want{Partition: p, TopicID: l.TopicID, LeaderEpoch: l.Epoch, LastEpoch: cluster.NoEpoch, MaxBytes: 1 << 20}
}

func request(wait time.Duration, wants ...fetcher.Want) *fetcher.FetchRequest {
	return &fetcher.FetchRequest{Changed: wants, MaxWait: wait, MinBytes: 1, MaxBytes: 8 << 20}
}

// fetch asks once and keeps copies of the records.
func (k *kit) fetch(s fetcher.Session, req *fetcher.FetchRequest) []fetcher.Fetched {
	k.Helper()
	resp, err := s.Fetch(k.ctx, req)
	if err != nil {
		k.Fatalf("fetch: %v", err)
	}
	got := slices.Clone(resp.Partitions)
	for i := range got {
		got[i].Records = slices.Clone(got[i].Records)
		clear(resp.Partitions[i].Records) // they are the receiver's to write in
	}
	resp.Release()
	return got
}

// brief shows answers without their bytes.
func brief(answers []fetcher.Fetched) string {
	var b strings.Builder
	for _, f := range answers {
		fmt.Fprintf(&b, "{%v [%d,%d) %d bytes, leader %+v, diverging %+v, error %v}", f.Partition, f.LogStart, f.HighWatermark, len(f.Records),
			f.Leader, f.Diverging, f.Err)
	}
	return b.String()
}

// batchesOf are the whole batches of an answer from an offset on.
func batchesOf(records []byte, from int64) (all []cluster.Batch) {
	for w := batch.Walk(records); w.Next(); {
		if b := asBatch(w.Header()); b.Next > from {
			all = append(all, b)
		}
	}
	return all
}

func fetchAll(k *kit) {
	p, all := k.fed(6, 3)
	s, w := k.open(p)
	for range 2 { // the second time the bytes must not be those that were written over
		var got []cluster.Batch
		for w.Offset = 0; w.Offset < 18; {
			answer := k.fetch(s, request(5*time.Second, w))
			if len(answer) != 1 || answer[0].Err != nil || answer[0].HighWatermark != 18 || answer[0].LogStart != 0 || answer[0].Diverging.EndOffset != -1 {
				k.Fatalf("at %d: %s", w.Offset, brief(answer))
			}
			bs := batchesOf(answer[0].Records, w.Offset)
			if len(bs) == 0 {
				k.Fatalf("no whole batch at %d of 18", w.Offset)
			}
			got = append(got, bs...)
			w.Offset = got[len(got)-1].Next
		}
		k.sameRecords(all, got)
	}
}

// incremental is KIP-227: a request names what changed; what has nothing new is left
// out of the answer, which waits; what was forgotten is not answered.
func incremental(k *kit) {
	p, _ := k.fed(1, 2)
	s, w := k.open(p)
	w.Offset = 2
	k.fetch(s, request(patience, w))
	began := time.Now()
	if got := k.fetch(s, request(patience)); len(got) != 0 || time.Since(began) < patience/2 {
		k.Errorf("nothing is new: %s after %v", brief(got), time.Since(began))
	}
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		k.rest()
		k.feed(p, k.batch(2, 1))
	}()
	defer func() { <-produced }()
	began = time.Now()
	var got []fetcher.Fetched
	for len(got) == 0 || len(got[0].Records) == 0 {
		if got = k.fetch(s, request(20*time.Second)); time.Since(began) > 15*time.Second {
			k.Fatalf("a record that was written did not end the wait: %s", brief(got))
		}
	}
	if b := batchesOf(got[0].Records, 2); len(got) != 1 || got[0].HighWatermark != 3 || len(b) != 1 || b[0].Base != 2 {
		k.Errorf("%s", brief(got))
	}
	if got := k.fetch(s, request(patience)); len(got) != 1 || len(got[0].Records) == 0 {
		k.Errorf("asked again from the same offset: %s", brief(got))
	}
	if got := k.fetch(s, &fetcher.FetchRequest{Forgotten: []cluster.Partition{p}, MaxWait: patience, MinBytes: 1, MaxBytes: 1 << 20}); len(got) != 0 {
		k.Errorf("a forgotten partition is answered: %s", brief(got))
	}
	w.Offset = 0
	if got := k.fetch(s, request(5*time.Second, w)); len(got) != 1 || len(got[0].Records) == 0 {
		k.Errorf("asked for again after it was forgotten: %s", brief(got))
	}
}

func giveWay(k *kit) {
	p, _ := k.fed(1, 2)
	for name, end := range map[string]func(fetcher.Session, context.CancelFunc){
		"Close": func(s fetcher.Session, _ context.CancelFunc) { s.Close() },
		"ctx":   func(_ fetcher.Session, cancel context.CancelFunc) { cancel() },
	} {
		s, w := k.open(p)
		w.Offset = 2
		k.fetch(s, request(0, w))
		ctx, cancel := context.WithCancel(context.WithoutCancel(k.ctx))
		failed := make(chan error, 1)
		go func() {
			for { // an answer without news is none
				resp, err := s.Fetch(ctx, request(time.Minute))
				if err != nil {
					failed <- err
					return
				}
				resp.Release()
			}
		}()
		k.rest()
		end(s, cancel)
		select {
		case <-failed:
		case <-time.After(k.limit / 3):
			k.Errorf("a fetch that waits does not notice %s", name)
			s.Close()
		}
		cancel()
	}
}

// fetchLimits: the first batch of an answer comes whatever its size; otherwise an
// answer is about as large as was asked for.
func fetchLimits(k *kit) {
	p, all := k.fed(10, 20)
	s, w := k.open(p)
	w.MaxBytes = 1
	got := k.fetch(s, request(5*time.Second, w))
	if len(got) != 1 || len(batchesOf(got[0].Records, 0)) < 1 {
		k.Errorf("at least one whole batch: %s", brief(got))
	}
	size := int32(len(all[0].Bytes))
	w.MaxBytes = 3*size + size/2
	got = k.fetch(s, request(5*time.Second, w))
	if n := len(batchesOf(got[0].Records, 0)); n < 1 || len(got[0].Records) > int(w.MaxBytes+size) {
		k.Errorf("%d batches and %d bytes for %d bytes of batches of %d", n, len(got[0].Records), w.MaxBytes, size)
	}
}

// fetchRefuses: each partition has its own error, and the others are served.
func fetchRefuses(k *kit) {
	p, _ := k.fed(2, 3)
	for name, c := range map[string]struct {
		change func(*fetcher.Want)
		want   []error // one of them
	}{
		"behind the end":   {func(w *fetcher.Want) { w.Offset = 99 }, []error{cluster.ErrOutOfRange}},
		"another topic id": {func(w *fetcher.Want) { w.TopicID[5] ^= 0xff }, []error{cluster.ErrTopicReplaced, cluster.ErrUnknownTopic}},
		"a later epoch":    {func(w *fetcher.Want) { w.LeaderEpoch += 7 }, []error{cluster.ErrLeaderEpoch}},
	} {
		s, w := k.open(p)
		bad := w
		if c.change(&bad); bad.TopicID != w.TopicID && w.TopicID.IsZero() {
			continue // a cluster without topic ids
		}
		got := k.fetch(s, request(5*time.Second, bad))
		if len(got) != 1 || !slices.ContainsFunc(c.want, func(err error) bool { return errors.Is(got[0].Err, err) }) {
			k.Errorf("%s: %s, want %v", name, brief(got), c.want)
		}
	}
	s, w := k.open(p)
	no := w
	no.Partition.Topic, no.TopicID = unique("absent"), cluster.TopicID{9, 9, 9}
	got := k.fetch(s, request(5*time.Second, no, w))
	served := slices.ContainsFunc(got, func(f fetcher.Fetched) bool { return f.Partition == p && f.Err == nil && len(f.Records) > 0 })
	refused := slices.ContainsFunc(got, func(f fetcher.Fetched) bool { return f.Partition == no.Partition && f.Err != nil })
	if !served || !refused {
		k.Errorf("one that is not there beside one that is: %s", brief(got))
	}
}

// movedLeader: who asks the leader that was is told so, and where the epochs part.
func movedLeader(k *kit) {
	p, _ := k.fed(2, 3)
	s, w := k.open(p)
	was := k.leader(p)
	k.end.Elect(k.TB, p)
	got := k.fetch(s, request(5*time.Second, w))
	if len(got) != 1 || !errors.Is(got[0].Err, cluster.ErrNotLeader) && !errors.Is(got[0].Err, cluster.ErrLeaderEpoch) {
		k.Errorf("the leader that was: %s", brief(got))
	}
	if now := k.leader(p); now.Broker == was.Broker || now.Epoch <= was.Epoch {
		k.Errorf("the leader is %+v, was %+v", now.Leader, was.Leader)
	}
	if k.end.OldFetch {
		return
	}
	k.feed(p, k.batch(6, 2))
	s, w = k.open(p)
	w.Offset, w.LastEpoch = 8, was.Epoch // more of the old epoch than there is
	got = k.fetch(s, request(5*time.Second, w))
	if len(got) != 1 || got[0].Err != nil || got[0].Diverging != (cluster.EpochEnd{Epoch: was.Epoch, EndOffset: 6}) {
		k.Errorf("a log that goes further in epoch %d than this one, to 6: %s", was.Epoch, brief(got))
	}
}
