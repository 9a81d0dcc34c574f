package memory_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestOnlyWhatIsReplicatedIsRead: the high watermark bounds reads and fetches inside
// what they would otherwise give.
func TestOnlyWhatIsReplicatedIsRead(t *testing.T) {
	c := with(t, memory.Options{Manual: true})
	produce(t, c, "a")
	c.Replicate()
	produce(t, c, "b")
	b, err := c.Read(t.Context(), p0, 0, 1<<20)
	must(t, err)
	got := ask(t, c).fetch(0, wantAt(0, cluster.NoEpoch))
	if len(batches(b)) != 1 || len(batches(got[0].Records)) != 1 || got[0].HighWatermark != 1 {
		t.Errorf("read %d batches, fetched %+v", len(batches(b)), got)
	}
}

// TestDivergedReplicaDoesNotCount: one that was the leader and has not followed yet has
// as many records, but others.
func TestDivergedReplicaDoesNotCount(t *testing.T) {
	c := with(t, memory.Options{Manual: true, ReplicationFactor: 2})
	produce(t, c, "a")
	c.Replicate()
	c.Replicate()
	produce(t, c, "lost")
	must(t, c.Elect(p0, followers(t, c)[0]))
	produce(t, c, "b")
	if o, err := c.LogOffsets(t.Context(), p0); err != nil || o.HighWatermark != 1 {
		t.Errorf("%+v, %v: the record at 1 is on one replica only", o, err)
	}
	c.Replicate()
	if o, err := c.LogOffsets(t.Context(), p0); err != nil || o.HighWatermark != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestLaggingFollowerTakesOverTheLogStart(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, values(0, 5)...)
	produce(t, c, values(5, 10)...)
	f := followers(t, c)[0]
	must(t, c.Lag(p0, f, true))
	must(t, c.DeleteRecords(p0, 7))
	must(t, c.Lag(p0, f, false))
	for _, r := range state(t, c).Replicas {
		if r.LogStart != 7 || r.LogEnd != 10 || !r.InSync || c.DumpOf(p0, r.Broker) != c.Dump(p0) {
			t.Errorf("%+v", r)
		}
	}
}

// TestNewLeaderBeginsItsEpochAtOnce: also without a record in it.
func TestNewLeaderBeginsItsEpochAtOnce(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a")
	must(t, c.Elect(p0, followers(t, c)[0]))
	answers, err := c.EpochEnds(t.Context(), []fetcher.EpochQuery{{Partition: p0, Current: 1, Epoch: 1}, {Partition: p0, Current: 1, Epoch: 0}})
	must(t, err)
	if answers[0].EpochEnd != (cluster.EpochEnd{Epoch: 1, EndOffset: 1}) || answers[1].EpochEnd != (cluster.EpochEnd{Epoch: 0, EndOffset: 1}) {
		t.Errorf("%+v", answers)
	}
}

// TestLostRecordsAreForgotten: what a leader knows of producers, transactions and
// writers is what its log holds.
func TestLostRecordsAreForgotten(t *testing.T) {
	c := with(t, memory.Options{})
	pr := c.Producer()
	_, err := pr.Send(p0, memory.Values("a")...)
	must(t, err)
	f := followers(t, c)[0]
	must(t, c.Lag(p0, f, true))
	open := c.Producer()
	open.Begin()
	_, err = open.Send(p0, memory.Values("open")...)
	must(t, err)
	_, err = pr.Send(p0, memory.Values("lost")...)
	must(t, err)
	must(t, c.ElectUnclean(p0, f))
	if s := state(t, c); s.LastStable != 1 {
		t.Errorf("last stable offset %d of a log that ends at 1", s.LastStable)
	}
	if _, err := pr.Send(p0, memory.Values("b")...); !errors.Is(err, cluster.ErrOutOfOrder) {
		t.Errorf("a sequence behind one that was lost: %v", err)
	}
	aborted, err := c.AbortOpen(t.Context(), []cluster.Partition{p0})
	if err != nil || aborted[0].Producers != nil {
		t.Errorf("%+v, %v", aborted, err)
	}
}

// TestOursIsWhatTheLogShows: a mirror's records that went with the tail are not there.
func TestOursIsWhatTheLogShows(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a", "b")
	w := c.Client("w")
	begin(t, w, one)
	if r := appended(w, batchAt(2, 0, "c")); r.Err != nil {
		t.Fatal(r.Err)
	}
	if e := begin(t, w, one); !e.Ours {
		t.Errorf("%+v", e)
	}
	must(t, w.Truncate(t.Context(), []fetcher.Cut{{Partition: p0, Offset: 2}})[0])
	if e := begin(t, w, one); e.Ours || e.LogEnd != 2 {
		t.Errorf("%+v", e)
	}
}

// TestRoomOfAnAnswer: what one partition has left over is too little for the next.
func TestRoomOfAnAnswer(t *testing.T) {
	c := memory.New(memory.Options{Brokers: 1})
	must(t, c.CreateTopic(cluster.NewTopic{Name: p0.Topic, Partitions: 2}))
	var wants []fetcher.Want
	for n := range int32(2) {
		p := cluster.Partition{Topic: p0.Topic, Partition: n}
		_, err := c.Produce(p, memory.Values("0123456789")...)
		must(t, err)
		w := wantAt(0, cluster.NoEpoch)
		w.Partition = p
		wants = append(wants, w)
	}
	s, err := c.Open(t.Context(), 1)
	must(t, err)
	room := int32(len(c.Log(p0))) + 1
	resp, err := s.Fetch(t.Context(), &fetcher.FetchRequest{Changed: wants, MaxBytes: room})
	must(t, err)
	if i := slices.IndexFunc(resp.Partitions, func(f fetcher.Fetched) bool { return f.Partition == wants[1].Partition }); len(resp.Partitions[i].Records) != 0 {
		t.Errorf("%d bytes for a partition that had one byte of room", len(resp.Partitions[i].Records))
	}
}

// TestHighWatermarkIsTold: also to who has all records.
func TestHighWatermarkIsTold(t *testing.T) {
	c := with(t, memory.Options{Manual: true})
	produce(t, c, "a")
	a := ask(t, c)
	if got := a.fetch(0, wantAt(1, cluster.NoEpoch)); len(got) != 1 || got[0].HighWatermark != 0 {
		t.Errorf("%+v", got)
	}
	c.Replicate()
	if got := a.fetch(0); len(got) != 1 || got[0].HighWatermark != 1 || len(got[0].Records) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestSequencesFollowTheLog: a new leader that lacks the last batch expects it again.
func TestSequencesFollowTheLog(t *testing.T) {
	c := with(t, memory.Options{Produce: true})
	w := c.Client("w")
	begin(t, w, one)
	f := followers(t, c)[0]
	if r := appended(w, batchAt(0, 0, "a")); r.Err != nil {
		t.Fatal(r.Err)
	}
	must(t, c.Lag(p0, f, true))
	if r := appended(w, batchAt(1, 0, "b")); r.Err != nil {
		t.Fatal(r.Err)
	}
	must(t, c.ElectUnclean(p0, f))
	if e := begin(t, w, one); e.LogEnd != 1 || e.Err != nil {
		t.Fatalf("%+v", e)
	}
	if r := appended(w, batchAt(1, 0, "b")); r.Err != nil || r.Next != 2 {
		t.Errorf("%+v", r)
	}
}

// TestLogStartNeverGoesBack: a follower that was trimmed keeps its log start when a
// replica leads that was not.
func TestLogStartNeverGoesBack(t *testing.T) {
	c := with(t, memory.Options{})
	produce(t, c, "a")
	produce(t, c, "b")
	f := followers(t, c)[0]
	must(t, c.Lag(p0, f, true))
	must(t, c.DeleteRecords(p0, 2))
	must(t, c.ElectUnclean(p0, f))
	produce(t, c, "c")
	for _, r := range state(t, c).Replicas {
		if want := map[bool]int64{true: 0, false: 2}[r.Broker == f]; r.LogStart != want || r.LogEnd != 3 {
			t.Errorf("%+v, want a log start of %d", r, want)
		}
	}
}
