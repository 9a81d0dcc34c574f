package memory_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/transport/memory"
)

func TestOnlyTheOwnerAppends(t *testing.T) {
	c := with(t, memory.Options{})
	a, b := c.Client("a"), c.Client("b")
	if r := appended(a, batchAt(0, 0, "x")); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("without Ends: %+v", r)
	}
	begin(t, a, one)
	if r := appended(a, batchAt(0, 3, "x"), batchAt(1, 3, "y")); r.Err != nil || r.Batches != 2 || r.Next != 2 {
		t.Errorf("%+v", r)
	}
	begin(t, b, one)
	if r := appended(a, batchAt(2, 3, "zombie")); !errors.Is(r.Err, cluster.ErrFenced) {
		t.Errorf("a client that was taken over from: %+v", r)
	}
	if err := a.Truncate(t.Context(), []fetcher.Cut{{Partition: p0}})[0]; !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("its truncation: %v", err)
	}
	if r := appended(b, batchAt(2, 3, "z")); r.Err != nil {
		t.Errorf("%+v", r)
	}
	dumped(t, c, `
[0,3) high watermark 3
0-1 epoch 3: 0:null=x
1-2 epoch 3: 1:null=y
2-3 epoch 3: 2:null=z
`)
}

// TestCompareAndAppend is I4: what is not at the log end lands nowhere, a lost batch
// is not taken for a gap, and after an error nothing lands until Ends.
func TestCompareAndAppend(t *testing.T) {
	c := with(t, memory.Options{})
	w := c.Client("w")
	begin(t, w, one)
	if r := appended(w, batchAt(0, 0, "x")); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := appended(w, batchAt(0, 0, "x")); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("repeated: %+v", r)
	}
	if r := appended(w, batchAt(1, 0, "y")); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("after an error: %+v", r)
	}
	begin(t, w, one)
	if r := appended(w, batchAt(5, 0, "y")); r.Err != nil || r.Next != 6 {
		t.Errorf("a gap: %+v", r)
	}
	c.SetFault(func(op memory.Op) memory.Fault { return memory.Fault{Kind: memory.LoseRequest} })
	lost := appending(w, batchAt(6, 0, "lost"))
	c.SetFault(nil)
	after := appending(w, batchAt(7, 0, "z"))
	if r := <-lost; !errors.Is(r.Err, cluster.ErrUnknownOutcome) {
		t.Errorf("%+v", r)
	}
	if r := <-after; !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("behind a batch that was lost: %+v", r)
	}
	if e := begin(t, w, one); e.LogEnd != 6 {
		t.Errorf("%+v", e)
	}
}

// TestLostTailIsNoGap: the leader loses what it had acknowledged; the next batch must
// not be taken for one after a gap.
func TestLostTailIsNoGap(t *testing.T) {
	c := with(t, memory.Options{Manual: true})
	w := c.Client("w")
	begin(t, w, one)
	if r := appended(w, batchAt(0, 0, "a", "b")); r.Err != nil {
		t.Fatal(r.Err)
	}
	must(t, c.Elect(p0, followers(t, c)[0]))
	if r := appended(w, batchAt(2, 0, "c")); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("%+v", r)
	}
	if e := begin(t, w, one); e.LogEnd != 0 {
		t.Errorf("%+v", e)
	}
}

func TestWhatADestinationCannotTake(t *testing.T) {
	kinds := map[string]struct {
		spec batch.Spec
		want error
	}{
		"gap inside":    {batch.Spec{Next: 7}, cluster.ErrGap},
		"transactional": {batch.Spec{Attributes: batch.AttrTransactional}, cluster.ErrTransactional},
		"control":       {batch.Spec{Attributes: batch.AttrControl | batch.AttrTransactional}, cluster.ErrControlBatch},
		"append time":   {batch.Spec{Attributes: batch.AttrLogAppendTime, Timestamp: 9}, cluster.ErrLogAppendTime},
		"gap before":    {batch.Spec{Base: 3}, cluster.ErrOutOfOrder},
	}
	for name, k := range kinds {
		poor, full := with(t, memory.Options{Produce: true}), with(t, memory.Options{})
		for _, c := range []*memory.Cluster{poor, full} {
			begin(t, c.Client("x"), one)
			w := c.Client("w")
			begin(t, w, one)
			b := batchOf(k.spec, "v")
			r := appended(w, b)
			switch {
			case c == full && (r.Err != nil || !slices.Equal(c.Log(p0), b.Bytes)):
				t.Errorf("%s: taken otherwise: %+v", name, r)
			case c == poor && (!errors.Is(r.Err, k.want) || len(c.Log(p0)) > 0):
				t.Errorf("%s: %+v, want %v", name, r, k.want)
			}
		}
	}
	c := with(t, memory.Options{StrictEpochs: true})
	begin(t, c.Client("w"), one)
	w := c.Client("w")
	begin(t, w, one)
	if r := appended(w, batchAt(0, 4, "x")); !errors.Is(r.Err, cluster.ErrLeaderEpoch) {
		t.Errorf("an epoch above the partition's own: %+v", r)
	}
	bad := batchAt(0, 0, "x")
	bad.Bytes[len(bad.Bytes)-1] ^= 1
	begin(t, w, one)
	if r := appended(w, bad); !errors.Is(r.Err, cluster.ErrCorrupt) {
		t.Errorf("a flipped bit: %+v", r)
	}
}

func TestStepped(t *testing.T) {
	c := with(t, memory.Options{Stepped: true})
	w := c.Client("w")
	begin(t, w, one)
	first, second := appending(w, batchAt(0, 0, "a")), appending(w, batchAt(1, 0, "b"))
	if c.Pending() != 2 || len(c.Log(p0)) > 0 {
		t.Errorf("%d wait, log\n%s", c.Pending(), c.Dump(p0))
	}
	if !c.Step() {
		t.Error("nothing to step")
	}
	if r := <-first; r.Err != nil || r.Next != 1 {
		t.Errorf("%+v", r)
	}
	begin(t, w, one)
	select {
	case r := <-second:
		if !errors.Is(r.Err, cluster.ErrTimeout) {
			t.Errorf("%+v", r)
		}
	default:
		t.Error("Ends has returned, and what it forgot was not answered")
	}
	if c.Step() {
		t.Error("a forgotten append waits")
	}
	first, second = appending(w, batchAt(1, 0, "b")), appending(w, batchAt(2, 0, "c"))
	for c.Step() {
	}
	if a, b := <-first, <-second; a.Err != nil || b.Err != nil || b.Next != 3 {
		t.Errorf("one behind the other: %+v, %+v", a, b)
	}
}

// TestFence is I6 and C2.15: a mirror topic is read-only until the fence, behind which
// no append of the stretch lands, and an ordinary topic after it.
func TestFence(t *testing.T) {
	c := with(t, memory.Options{})
	w := c.Client("w")
	begin(t, w, one)
	produce(t, c, "looked at only")
	begin(t, w, one)
	if r := appended(w, batchAt(1, 0, "x")); r.Err != nil {
		t.Fatal(r.Err)
	}
	_, produced := c.Produce(p0, memory.Values("y")...)
	_, sent := c.Producer().Send(p0, memory.Values("y")...)
	for what, err := range map[string]error{
		"produce": produced, "idempotent": sent, "delete records": c.DeleteRecords(p0, 1),
		"create partitions": c.CreatePartitions(p0.Topic, 5), "delete": c.DeleteTopic(p0.Topic),
	} {
		if !errors.Is(err, memory.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 {
		stopped, err := c.Client("other").Fence(t.Context(), []fetcher.Stretch{one})
		must(t, err)
		if e := stopped[0]; e.Err != nil || !e.Stopped || e.LogEnd != 2 || !e.Ours {
			t.Errorf("%+v", e)
		}
	}
	if r := appended(w, batchAt(2, 0, "late")); !errors.Is(r.Err, cluster.ErrFenced) {
		t.Errorf("%+v", r)
	}
	produce(t, c, "local")
	must(t, c.CreatePartitions(p0.Topic, 2))
	if e := begin(t, w, one); !e.Stopped || e.LogEnd != 3 || e.Ours {
		t.Errorf("%+v", e)
	}
	again := one
	again.New = true
	if e := begin(t, w, again); e.Stopped || e.Err != nil {
		t.Errorf("%+v", e)
	}
	if r := appended(w, batchAt(3, 1, "z")); r.Err != nil {
		t.Errorf("%+v", r)
	}
	if e := begin(t, c.Client("n"), fetcher.Stretch{Mirror: "n", Partition: p0}); !errors.Is(e.Err, cluster.ErrActive) || e.Ours {
		t.Errorf("another mirror: %+v", e)
	}
}

func TestProduceDestinationDetects(t *testing.T) {
	c := with(t, memory.Options{Produce: true})
	a, b := c.Client("a"), c.Client("b")
	begin(t, a, one)
	if r := appended(a, batchAt(0, 9, "x")); r.Err != nil {
		t.Fatal(r.Err)
	}
	begin(t, b, one)
	if r := appended(a, batchAt(1, 9, "zombie")); r.Err != nil { // lands where it belongs
		t.Errorf("%+v", r)
	}
	if r := appended(b, batchAt(1, 9, "zombie")); !errors.Is(r.Err, cluster.ErrFenced) {
		t.Errorf("a batch that another has appended: %+v", r)
	}
	begin(t, b, one)
	produce(t, c, "foreign")
	r := appended(b, batchAt(2, 9, "y"))
	var at *cluster.OffsetError
	if !errors.Is(r.Err, cluster.ErrDisplaced) || !errors.As(r.Err, &at) || at.Span != (cluster.Span{From: 3, To: 4}) {
		t.Errorf("%+v", r)
	}
	e := begin(t, b, one)
	if !errors.Is(e.Err, cluster.ErrForeignWrite) || !errors.As(e.Err, &at) || at.Span != (cluster.Span{From: 2, To: 4}) {
		t.Errorf("%+v", e)
	}
	_, err := b.Fence(t.Context(), []fetcher.Stretch{one})
	must(t, err)
	dumped(t, c, `
[0,5) high watermark 5
0-1 epoch 0: 0:null=x
1-2 epoch 0: 1:null=zombie
2-3 epoch 0: 2:null=foreign
3-4 epoch 0: 3:null=y
4-5 epoch 0: phantom
`)
}
