package memory_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/google/go-cmp/cmp"
)

// read are the values that a consumer sees.
func read(t testing.TB, c *memory.Cluster, committed bool) (vs []string) {
	t.Helper()
	rs, err := c.Records(p0, committed)
	must(t, err)
	for _, r := range rs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func TestTransactions(t *testing.T) {
	c := with(t, memory.Options{})
	good, bad := c.Producer(), c.Producer()
	send := func(pr *memory.Producer, v string) {
		t.Helper()
		rs := memory.Values(v)
		rs[0].Timestamp = 1
		_, err := pr.Send(p0, rs...)
		must(t, err)
	}
	good.Begin()
	bad.Begin()
	send(good, "g1")
	send(bad, "b1")
	produce(t, c, "plain")
	send(good, "g2")
	if s := state(t, c); s.LastStable != 0 || read(t, c, true) != nil {
		t.Errorf("open: last stable offset %d, read %v", s.LastStable, read(t, c, true))
	}
	must(t, good.Commit())
	if s := state(t, c); s.LastStable != 1 {
		t.Errorf("the other is still open: %d", s.LastStable)
	}
	must(t, bad.Abort())
	if got := read(t, c, true); !slices.Equal(got, []string{"g1", "plain", "g2"}) {
		t.Errorf("committed: %v", got)
	}
	if got := read(t, c, false); !slices.Equal(got, []string{"g1", "b1", "plain", "g2"}) {
		t.Errorf("all: %v", got)
	}
	dumped(t, c, `
[0,6) high watermark 6
0-1 epoch 0 producer 0/0/0 transactional: 0:null=g1
1-2 epoch 0 producer 1/0/0 transactional: 1:null=b1
2-3 epoch 0: 2:null=plain
3-4 epoch 0 producer 0/0/1 transactional: 3:null=g2
4-5 epoch 0 producer 0/0/-1 transactional commit:
5-6 epoch 0 producer 1/0/-1 transactional abort:
`)
}

func TestSequences(t *testing.T) {
	c := with(t, memory.Options{})
	pr := c.Producer()
	for i, v := range values(0, 7) {
		if at, err := pr.Send(p0, memory.Values(v)...); at != int64(i) || err != nil {
			t.Fatal(at, err)
		}
	}
	if at, err := pr.Resend(p0); at != 6 || err != nil {
		t.Errorf("a duplicate is answered with its offset: %d, %v", at, err)
	}
	late := c.ProducerWithID(pr.ID(), 0)
	if _, err := late.Send(p0, memory.Values("x", "y")...); !errors.Is(err, cluster.ErrOutOfOrder) {
		t.Errorf("sequence 0 again: %v", err)
	}
	if _, err := c.ProducerWithID(pr.ID(), 1).Send(p0, memory.Values("x")...); err != nil {
		t.Errorf("a new epoch: %v", err)
	}
	if _, err := pr.Send(p0, memory.Values("x")...); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("an old epoch: %v", err)
	}
	if at, err := c.Producer().Send(p0, memory.Values("z")...); at != 8 || err != nil {
		t.Errorf("another id: %d, %v", at, err)
	}
}

// TestProducersAfterFailover are C3.1, C3.3 and C3.5: mirrored ids and an open
// transaction must not stand in the way of new producers and readers.
func TestProducersAfterFailover(t *testing.T) {
	source, c := with(t, memory.Options{}), with(t, memory.Options{})
	mirrored := source.Producer()
	for _, v := range values(0, 10) {
		_, err := mirrored.Send(p0, memory.Values(v)...)
		must(t, err)
	}
	open := source.Producer()
	open.Begin()
	_, err := open.Send(p0, memory.Values("open")...)
	must(t, err)

	w := c.Client("w")
	begin(t, w, one)
	for b := range slices.Values(batches(source.Log(p0))) {
		if r := appended(w, b); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if s := state(t, c); s.LastStable != 10 {
		t.Errorf("an open transaction is visible: %d", s.LastStable)
	}
	_, err = w.Fence(t.Context(), []fetcher.Stretch{one})
	must(t, err)
	if at, err := c.ProducerWithID(mirrored.ID(), 0).Send(p0, memory.Values("0")...); err == nil && at >= 10 {
		t.Error("the collision that the guard is for does not happen")
	}
	for range 2 {
		aborted, err := w.AbortOpen(t.Context(), []cluster.Partition{p0})
		must(t, err)
		t.Log(aborted)
	}
	must(t, w.GuardProducers(t.Context(), []cluster.Partition{p0})[0])
	end := state(t, c).Replicas[0].LogEnd
	if end != 12 {
		t.Errorf("log end %d: one marker was to be appended", end)
	}
	pr := c.Producer()
	if pr.ID() != mirrored.ID() {
		t.Fatalf("id %d, no collision with %d", pr.ID(), mirrored.ID())
	}
	for i, v := range values(0, 5) {
		if at, err := pr.Send(p0, memory.Values("new "+v)...); err != nil || at != end+int64(i) {
			t.Errorf("acknowledged at %d: %v", at, err)
		}
	}
	if got := read(t, c, true); len(got) != 15 || got[10] != "new 0" {
		t.Errorf("%v", got)
	}
}

func TestCompaction(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a", "b", "c")
	produce(t, c, "d")
	produce(t, c, "e", "f")
	produce(t, c, "g")
	must(t, c.Compact(p0, 0, 4))
	want := `
[0,7) high watermark 7
0-3 epoch 0: 0:null=a
4-6 epoch 0: 4:null=e
6-7 epoch 0: 6:null=g
`
	for _, r := range state(t, c).Replicas {
		if d := cmp.Diff(want, "\n"+c.DumpOf(p0, r.Broker)); d != "" {
			t.Error(d)
		}
	}
	for b := range slices.Values(batches(c.Log(p0))) {
		must(t, batch.Header(b.Bytes).Check())
	}
	b, err := c.Read(t.Context(), p0, 3, 1)
	must(t, err)
	if got := batches(b); len(got) != 1 || got[0].Base != 4 {
		t.Errorf("read in a hole: %+v", got)
	}
}

func TestBatchesOfTheCallers(t *testing.T) {
	c := with(t, memory.Options{})
	b := batchOf(batch.Spec{Base: 90, LeaderEpoch: 4, Codec: batch.Zstd, Producer: &batch.Producer{ID: 5}}, "x", "y")
	base, err := c.ProduceBatches(p0, b.Bytes, b.Bytes)
	if base != 0 || err != nil {
		t.Fatal(base, err)
	}
	must(t, c.Inject(p0, b.Bytes))
	if err := c.Inject(p0, b.Bytes); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("below the end: %v", err)
	}
	if err := c.Inject(p0, b.Bytes[:20]); !errors.Is(err, cluster.ErrCorrupt) {
		t.Errorf("half a batch: %v", err)
	}
	must(t, c.SetTopicConfig(p0.Topic, "message.timestamp.type", "LogAppendTime"))
	_, err = c.Produce(p0, memory.Record{Timestamp: 5, Key: []byte{0}, Value: nil, Headers: []memory.Header{{Key: "h", Value: []byte("")}}})
	must(t, err)
	dumped(t, c, `
[0,93) high watermark 93
0-2 epoch 0 producer 5/0/0 zstd: 0:null=x 1:null=y
2-4 epoch 0 producer 5/0/0 zstd: 2:null=x 3:null=y
90-92 epoch 0 producer 5/0/0 zstd: 90:null=x 91:null=y
92-93 epoch 0 log-append-time: 92:"\x00"=null{h=""}
`)
}

func FuzzProduceBatches(f *testing.F) {
	f.Add(batchAt(3, 1, "x", "y").Bytes)
	f.Add([]byte("no batch"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := with(t, memory.Options{Brokers: 1})
		_, err := c.ProduceBatches(p0, b)
		if (err == nil) != (len(c.Log(p0)) > 0) {
			t.Errorf("%v, log of %d bytes", err, len(c.Log(p0)))
		}
		if err == nil {
			must(t, batch.Header(c.Log(p0)).Check())
			c.Dump(p0)
		}
	})
}
