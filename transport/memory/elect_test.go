package memory_test

import (
	"errors"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/google/go-cmp/cmp"
)

func TestUncleanElectionLosesTheTail(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a", "b")
	f := followers(t, c)[0]
	must(t, c.Lag(p0, f, true))
	produce(t, c, "c")
	if err := c.Elect(p0, f); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("clean election of a replica out of sync: %v", err)
	}
	must(t, c.ElectUnclean(p0, f))
	produce(t, c, "d", "e")
	want := `
[0,4) high watermark 4
0-2 epoch 0: 0:null=a 1:null=b
2-4 epoch 1: 2:null=d 3:null=e
`
	dumped(t, c, want)
	for _, r := range state(t, c).Replicas {
		if d := cmp.Diff(want, "\n"+c.DumpOf(p0, r.Broker)); d != "" || !r.InSync {
			t.Errorf("broker %d, in sync %v:\n%s", r.Broker, r.InSync, d)
		}
	}
	answers, err := c.EpochEnds(t.Context(), []fetcher.EpochQuery{{Partition: p0, Current: 1, Epoch: 0}, {Partition: p0, Current: 0, Epoch: 0}})
	must(t, err)
	if answers[0].EpochEnd != (cluster.EpochEnd{Epoch: 0, EndOffset: 2}) || !errors.Is(answers[1].Err, cluster.ErrLeaderEpoch) {
		t.Errorf("%+v", answers)
	}
}

// TestManualReplication: the high watermark is what all in-sync replicas have, and a
// clean election loses what its winner has not fetched.
func TestManualReplication(t *testing.T) {
	c := with(t, memory.Options{Manual: true})
	produce(t, c, "a")
	high := func() int64 {
		o, err := c.LogOffsets(t.Context(), p0)
		must(t, err)
		return o.HighWatermark
	}
	if got := high(); got != 0 {
		t.Errorf("high watermark %d before anything was replicated", got)
	}
	c.Replicate(p0)
	if got := high(); got != 1 {
		t.Errorf("high watermark %d after a round", got)
	}
	if b, err := c.Read(t.Context(), p0, 1, 1<<20); err != nil || len(b) > 0 {
		t.Errorf("read at the end: %d bytes, %v", len(b), err)
	}
	produce(t, c, "lost")
	must(t, c.Elect(p0, followers(t, c)[1]))
	if got := high(); got != 0 {
		t.Errorf("the new leader knows high watermark %d, one round early", got)
	}
	produce(t, c, "b")
	c.Replicate()
	if d := cmp.Diff([]int64{2, 2, 2}, ends(t, c)); d != "" {
		t.Error(d)
	}
	dumped(t, c, `
[0,2) high watermark 2
0-1 epoch 0: 0:null=a
1-2 epoch 1: 1:null=b
`)
}

func TestLastInSyncReplicaComesBack(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a")
	leader := state(t, c).Leader
	other := followers(t, c)[0]
	for _, f := range followers(t, c) {
		c.StopBroker(f)
	}
	produce(t, c, "b")
	c.StopBroker(leader.Broker)
	if _, err := c.Leaders(t.Context(), []cluster.Partition{p0}, true); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("no broker is up: %v", err)
	}
	c.StartBroker(other)
	answers, err := c.Leaders(t.Context(), []cluster.Partition{p0}, true)
	must(t, err)
	if answers[0].Leader.Broker != -1 || !errors.Is(answers[0].Err, cluster.ErrUnavailable) {
		t.Errorf("a replica out of sync leads: %+v", answers[0])
	}
	c.StartBroker(leader.Broker)
	now := state(t, c).Leader
	if now.Broker != leader.Broker || now.Epoch <= leader.Epoch {
		t.Errorf("leader %+v, was %+v", now, leader)
	}
	dumped(t, c, "\n[0,2) high watermark 2\n0-1 epoch 0: 0:null=a\n1-2 epoch 0: 1:null=b\n")
}

// TestTruncationReachesThoseAway is I8: a replica that is down owes the cut and serves
// it before it follows or leads, however the leaders went meanwhile.
func TestTruncationReachesThoseAway(t *testing.T) {
	c := with(t, memory.Options{})
	begin(t, c.Client("a"), one)
	w := c.Client("w")
	begin(t, w, one)
	if r := appended(w, batchAt(0, 0, values(0, 5)...), batchAt(5, 0, values(5, 10)...)); r.Err != nil {
		t.Fatal(r.Err)
	}
	away := followers(t, c)[0]
	c.StopBroker(away)
	errs := w.Truncate(t.Context(), []fetcher.Cut{{Partition: p0, Offset: 7}})
	must(t, errs[0])
	if o, err := c.LogOffsets(t.Context(), p0); err != nil || o.HighWatermark != 5 {
		t.Errorf("the high watermark stands behind the end: %+v, %v", o, err)
	}
	for _, r := range state(t, c).Replicas {
		want, owes := int64(5), int64(-1)
		if r.Broker == away {
			want, owes = 10, 7
		}
		if r.LogEnd != want || r.Owes != owes {
			t.Errorf("%+v, want end %d, owing %d", r, want, owes)
		}
	}
	// All others go, so that the one that was away leads when it comes back.
	begin(t, w, one)
	if r := appended(w, batchAt(5, 0, "x")); r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, r := range state(t, c).Replicas {
		if r.Broker != away {
			c.StopBroker(r.Broker)
		}
	}
	c.StartBroker(away)
	must(t, c.ElectUnclean(p0, away))
	dumped(t, c, "\n[0,5) high watermark 5\n0-5 epoch 0: 0:null=0 1:null=1 2:null=2 3:null=3 4:null=4\n")
}

func TestTrimAndStart(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, values(0, 5)...)
	produce(t, c, values(5, 10)...)
	trim := func(to int64) {
		t.Helper()
		must(t, c.Trim(t.Context(), []fetcher.Cut{{Partition: p0, Offset: to}})[0])
	}
	for _, step := range []struct{ to, want int64 }{{7, 7}, {3, 7}, {100, 10}} {
		trim(step.to)
		for _, r := range state(t, c).Replicas {
			if r.LogStart != step.want {
				t.Errorf("trimmed to %d: %+v", step.to, r)
			}
		}
	}
	c.StopBroker(followers(t, c)[0])
	var told int64
	must(t, c.StartAt(t.Context(), one, 50, func(n int64) { told = n }))
	must(t, c.StartAt(t.Context(), one, 50, nil)) // again
	for _, r := range state(t, c).Replicas {
		c.StartBroker(r.Broker)
	}
	for _, r := range state(t, c).Replicas {
		if r.LogStart != 50 || r.LogEnd != 50 || told != 50 {
			t.Errorf("%+v, told %d", r, told)
		}
	}
	begin(t, c.Client("w"), one)
	if err := c.StartAt(t.Context(), one, 40, nil); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("start below the end: %v", err)
	}
}

func TestRaisedEpochs(t *testing.T) {
	c := with(t, memory.Options{})
	raise := func(to int32) error {
		return c.RaiseEpochs(t.Context(), []fetcher.EpochRaise{{Partition: p0, Epoch: to}})[0]
	}
	must(t, raise(11))
	must(t, raise(5))
	if l := state(t, c).Leader; l.Epoch != 11 {
		t.Errorf("%+v", l)
	}
	if e := begin(t, c.Client(""), one); e.LeaderEpoch != 11 {
		t.Errorf("%+v", e)
	}
	p := with(t, memory.Options{Produce: true})
	if err := p.RaiseEpochs(t.Context(), []fetcher.EpochRaise{{Partition: p0, Epoch: 3}})[0]; !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
