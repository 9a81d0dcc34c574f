package kafka

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var p0 = cluster.Partition{Topic: "t", Partition: 0}

func now() int64 { return time.Now().UnixMilli() }

func TestAppendAndGoOn(t *testing.T) {
	f := fake(t, 3, "t", 1)
	c := open(t, f.ListenAddrs())
	if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 0 || e.Stopped || e.TopicID.IsZero() {
		t.Fatalf("end of an empty log: %+v", e)
	}
	mustAppend(t, c, p0, batchesAt(0, 5, 10, now()))
	mustAppend(t, c, p0, batchesAt(50, 30, 1, now()))
	if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 80 || e.HighWatermark != 80 || e.LogStart != 0 {
		t.Fatalf("%+v", e)
	}
	// A worker that was just started goes on with the same id.
	other := open(t, f.ListenAddrs())
	if e := beginAt(t, other, stretchOf(p0)); e.LogEnd != 80 {
		t.Fatalf("%+v", e)
	}
	mustAppend(t, other, p0, batchesAt(80, 2, 5, now()))
	if a, b := c.lane(p0).id, other.lane(p0).id; a != b {
		t.Errorf("two workers derive %#x and %#x", a, b)
	}
	want := batchesAt(0, 1, 10, 0)[0].Bytes[batch.HeaderSize:]
	if got := readAll(t, c, p0)[batch.HeaderSize:]; !bytes.HasPrefix(got, want) {
		t.Error("the payload is not what was appended")
	}
}

func TestAppendRefusals(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs(), func(cfg *Config) { cfg.GapFill = GapFail })
	if r := appendRun(t, c, p0, batchesAt(0, 1, 1, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("before Ends: %v", r.Err)
	}
	beginAt(t, c, stretchOf(p0))
	if r := appendRun(t, c, p0, batchesAt(5, 1, 1, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("a gap: %v", r.Err)
	}
	if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != 0 {
		t.Errorf("a batch that leaves a gap was appended: end %d", e.LogEnd)
	}
	gap := append(batchesAt(0, 1, 3, now()), batchesAt(4, 1, 3, now())...)
	if r := appendRun(t, c, p0, gap); !errors.Is(r.Err, cluster.ErrOutOfOrder) || r.Batches != 0 {
		t.Errorf("a gap inside a run: %+v", r)
	}
}

// A second worker appends: the first one's batches are refused, nothing lands
// twice, and both say that they are fenced (I4).
func TestSecondWorker(t *testing.T) {
	f := fake(t, 1, "t", 1)
	a, b := open(t, f.ListenAddrs()), open(t, f.ListenAddrs())
	beginAt(t, a, stretchOf(p0))
	mustAppend(t, a, p0, batchesAt(0, 1, 10, now()))
	beginAt(t, b, stretchOf(p0))
	mustAppend(t, b, p0, batchesAt(10, 1, 10, now()))
	mustAppend(t, b, p0, batchesAt(20, 1, 10, now()))

	first := make(chan fetcher.Result, 1)
	second := make(chan fetcher.Result, 1)
	a.Append(p0, batchesAt(10, 1, 5, now()), nil, func(r fetcher.Result) { first <- r })
	a.Append(p0, batchesAt(15, 2, 5, now()), nil, func(r fetcher.Result) { second <- r })
	if r := wait(t, first); !errors.Is(r.Err, cluster.ErrOutOfOrder) || r.Next != 10 {
		t.Errorf("stale batch: %+v", r)
	}
	if r := wait(t, second); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("the run behind it: %+v", r)
	}
	if e := endOf(t, a, stretchOf(p0)); !errors.Is(e.Err, cluster.ErrFenced) || e.LogEnd != 30 {
		t.Errorf("first look after another worker: %+v", e)
	}
	mustAppend(t, b, p0, batchesAt(30, 1, 10, now()))
	if e := endOf(t, a, stretchOf(p0)); !errors.Is(e.Err, cluster.ErrFenced) {
		t.Errorf("the other worker is still active: %+v", e)
	}
	if e := endOf(t, a, stretchOf(p0)); e.Err != nil || e.LogEnd != 40 {
		t.Errorf("the log stood still, take over: %+v", e)
	}
	mustAppend(t, a, p0, batchesAt(40, 1, 10, now()))
}

func TestManyPartitionsInOneRequest(t *testing.T) {
	const partitions = 40
	f := fake(t, 2, "t", partitions)
	f2 := map[string]int{}
	var mu sync.Mutex
	f.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		f2["requests"]++
		for _, topic := range kreq.(*kmsg.ProduceRequest).Topics {
			f2["batches"] += len(topic.Partitions)
		}
		return nil, nil, false
	})
	c := open(t, f.ListenAddrs())
	var ss []fetcher.Stretch
	for i := range int32(partitions) {
		ss = append(ss, stretchOf(cluster.Partition{Topic: "t", Partition: i}))
	}
	ends, err := c.Ends(within(t, 20*time.Second), shuffled(ss))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ends {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
	}
	results := make(chan fetcher.Result, partitions*20)
	for n := range 20 {
		for _, s := range shuffled(ss) {
			c.Append(s.Partition, batchesAt(int64(n*4), 2, 2, now()), nil, func(r fetcher.Result) { results <- r })
		}
	}
	for range partitions * 20 {
		if r := wait(t, results); r.Err != nil {
			t.Fatal(r.Partition, r.Err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if f2["batches"] != partitions*40 || f2["requests"] >= f2["batches"]/3 {
		t.Errorf("%d batches in %d requests", f2["batches"], f2["requests"])
	}
}

// The first batches of a stretch go with acks=all, one at a time; then acks=1.
// Batches with timestamps that the broker's memory does not reach go with acks=all.
func TestAcks(t *testing.T) {
	f := fake(t, 1, "t", 1)
	var mu sync.Mutex
	var acks []int16
	f.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		acks = append(acks, kreq.(*kmsg.ProduceRequest).Acks)
		return nil, nil, false
	})
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	old := now() - (25 * time.Hour).Milliseconds()
	run := append(batchesAt(0, 3, 1, now()), batchesAt(3, 2, 1, old)...)
	mustAppend(t, c, p0, append(run, batchesAt(5, 1, 1, now())...))
	mu.Lock()
	defer mu.Unlock()
	want := []int16{acksAll, acksLeader, acksLeader, acksAll, acksAll, acksLeader}
	if len(acks) != len(want) {
		t.Fatalf("acks %v, want %v", acks, want)
	}
	for i := range want {
		if acks[i] != want[i] {
			t.Fatalf("acks %v, want %v", acks, want)
		}
	}
}

func TestLeaderMoves(t *testing.T) {
	f := fake(t, 3, "t", 1)
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 2, 5, now()))
	for i := range int64(4) {
		if err := f.MoveTopicPartition("t", 0, int32((int64(f.LeaderFor("t", 0))+1)%3)); err != nil {
			t.Fatal(err)
		}
		at := 10 + i*5
		if r := appendRun(t, c, p0, batchesAt(at, 1, 5, now())); !errors.Is(r.Err, cluster.ErrNotLeader) {
			t.Fatalf("old leader: %v", r.Err)
		}
		if e := beginAt(t, c, stretchOf(p0)); e.LogEnd != at {
			t.Fatalf("log end %d, want %d", e.LogEnd, at)
		}
		mustAppend(t, c, p0, batchesAt(at, 1, 5, now()))
	}
}

func TestProduceErrors(t *testing.T) {
	for _, k := range []struct {
		name string
		code int16
		want error
	}{
		{"INVALID_PRODUCER_EPOCH", 47, cluster.ErrFenced},
		{"NOT_ENOUGH_REPLICAS", 19, cluster.ErrUnavailable},
		{"NOT_ENOUGH_REPLICAS_AFTER_APPEND", 20, cluster.ErrUnavailable},
		{"REQUEST_TIMED_OUT", 7, cluster.ErrTimeout},
		{"MESSAGE_TOO_LARGE", 10, cluster.ErrTooLarge},
		{"CORRUPT_MESSAGE", 2, cluster.ErrCorrupt},
		{"TOPIC_AUTHORIZATION_FAILED", 29, cluster.ErrAuthorization},
	} {
		t.Run(k.name, func(t *testing.T) {
			f := fake(t, 1, "t", 1)
			c := open(t, f.ListenAddrs())
			beginAt(t, c, stretchOf(p0))
			f.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				return answerProduce(kreq, k.code, -1, -1), nil, true
			})
			if r := appendRun(t, c, p0, batchesAt(0, 3, 1, now())); !errors.Is(r.Err, k.want) || r.Batches != 0 {
				t.Errorf("%+v, want %v", r, k.want)
			}
			beginAt(t, c, stretchOf(p0))
			mustAppend(t, c, p0, batchesAt(0, 3, 1, now()))
		})
	}
}

func answerProduce(kreq kmsg.Request, code int16, base, appendTime int64) kmsg.Response {
	req := kreq.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode, p.BaseOffset, p.LogAppendTime = rp.Partition, code, base, appendTime
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// Batches in flight that landed elsewhere are reported as one span (I4).
func TestDisplaced(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 1, 10, now()))
	shift := int64(7)
	f.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		h := batch.Header(kreq.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
		return answerProduce(kreq, 0, int64(h.BaseSequence())+shift, -1), nil, true
	})
	r := appendRun(t, c, p0, batchesAt(10, 4, 10, now()))
	var o *cluster.OffsetError
	if !errors.Is(r.Err, cluster.ErrDisplaced) || !errors.As(r.Err, &o) {
		t.Fatalf("%+v", r)
	}
	if o.Span.From != 17 || o.Span.To <= 27-1 || (o.Span.To-17)%10 != 0 || r.Next != 10 {
		t.Errorf("displaced %v, next %d", o.Span, r.Next)
	}
}

func TestCloseAnswersEverything(t *testing.T) {
	f := fake(t, 1, "t", 4)
	c := open(t, f.ListenAddrs())
	for i := range int32(4) {
		beginAt(t, c, stretchOf(cluster.Partition{Topic: "t", Partition: i}))
	}
	held := make(chan struct{})
	var once sync.Once
	stop := make(chan struct{})
	defer close(stop)
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.SleepControl(func() {
			once.Do(func() { close(held) })
			<-stop
		})
		return nil, nil, false
	})
	results := make(chan fetcher.Result, 40)
	for i := range int32(4) {
		p := cluster.Partition{Topic: "t", Partition: i}
		for n := range int64(10) {
			c.Append(p, batchesAt(n, 1, 1, now()), nil, func(r fetcher.Result) { results <- r })
		}
	}
	<-held
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if r := wait(t, results); r.Err == nil {
			t.Errorf("%+v succeeded on a closed connection", r)
		}
	}
	if r := appendRun(t, c, p0, batchesAt(0, 1, 1, now())); r.Err == nil {
		t.Error("a lane that failed goes on without Ends")
	}
}

func TestDeadBrokerFailsOnlyItsPartitions(t *testing.T) {
	f := fake(t, 2, "t", 2)
	if err := f.MoveTopicPartition("t", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.MoveTopicPartition("t", 1, 1); err != nil {
		t.Fatal(err)
	}
	dead := &gate{}
	c := open(t, f.ListenAddrs(), func(cfg *Config) { cfg.Dial = dead.dial })
	p1 := cluster.Partition{Topic: "t", Partition: 1}
	ends, err := c.Ends(within(t, 10*time.Second), []fetcher.Stretch{stretchOf(p0), stretchOf(p1)})
	if err != nil || ends[0].Err != nil || ends[1].Err != nil {
		t.Fatal(err, ends)
	}
	dead.shut(f.ListenAddrs()[0])
	if r := appendRun(t, c, p0, batchesAt(0, 1, 1, now())); !errors.Is(r.Err, cluster.ErrUnreachable) {
		t.Errorf("dead broker: %v", r.Err)
	}
	mustAppend(t, c, p1, batchesAt(0, 1, 1, now()))
	ends, err = c.Ends(within(t, 10*time.Second), []fetcher.Stretch{stretchOf(p0), stretchOf(p1)})
	if err != nil || ends[0].Err == nil || ends[1].Err != nil {
		t.Errorf("Ends with a dead broker: %+v, %v", ends, err)
	}
	dead.open()
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 1, 1, now()))
}

func TestFenceStopsLateWorkers(t *testing.T) {
	f := fake(t, 1, "t", 2)
	c := open(t, f.ListenAddrs())
	late := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 2, 5, now()))
	beginAt(t, late, stretchOf(p0))

	ends, err := c.Fence(within(t, 10*time.Second), []fetcher.Stretch{stretchOf(p0)})
	if err != nil || ends[0].Err != nil || ends[0].LogEnd != 11 || !ends[0].Stopped {
		t.Fatalf("%+v %v", ends, err)
	}
	if r := appendRun(t, late, p0, batchesAt(10, 1, 5, now())); !errors.Is(r.Err, cluster.ErrFenced) {
		t.Errorf("late worker: %v", r.Err)
	}
	if r := appendRun(t, c, p0, batchesAt(10, 1, 5, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("after its own fence: %v", r.Err)
	}
	again, err := c.Fence(within(t, 10*time.Second), []fetcher.Stretch{stretchOf(p0)})
	if err != nil || again[0].LogEnd != 11 || again[0].Err != nil {
		t.Errorf("second fence: %+v %v", again, err)
	}
	if e := beginAt(t, late, stretchOf(p0)); !e.Stopped || e.LogEnd != 11 {
		t.Errorf("Ends after the fence: %+v", e)
	}
	produceForeign(t, c, p0, 3)
	fresh := stretchOf(p0)
	fresh.New = true
	if e := beginAt(t, c, fresh); e.Stopped || e.LogEnd != 14 {
		t.Fatalf("new stretch: %+v", e)
	}
	if e := beginAt(t, c, stretchOf(p0)); e.Stopped || e.LogEnd != 14 {
		t.Fatalf("the new stretch before its first batch: %+v", e)
	}
	mustAppend(t, c, p0, batchesAt(14, 2, 5, now()))
	if e := beginAt(t, open(t, f.ListenAddrs()), stretchOf(p0)); e.Stopped || e.LogEnd != 24 {
		t.Errorf("the new stretch, seen by another worker: %+v", e)
	}
}

// A stretch that was begun behind a fence goes on before its first batch, although
// the log still ends with the fence.
func TestNewStretchBeforeItsFirstBatch(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 1, 10, now()))
	if ends, err := c.Fence(within(t, 10*time.Second), []fetcher.Stretch{stretchOf(p0)}); err != nil || ends[0].Err != nil {
		t.Fatal(ends, err)
	}
	if e := beginAt(t, c, stretchOf(p0)); !e.Stopped {
		t.Fatalf("%+v", e)
	}
	fresh := stretchOf(p0)
	fresh.New = true
	beginAt(t, c, fresh)
	if e := beginAt(t, c, stretchOf(p0)); e.Stopped || e.LogEnd != 11 {
		t.Fatalf("%+v", e)
	}
	mustAppend(t, c, p0, batchesAt(11, 1, 10, now()))
}

// After a failure nothing is answered while bytes are still under way, and then
// everything is, with the whole displaced span.
func TestLaneAnswersAfterTheLastInFlight(t *testing.T) {
	l := &lane{p: p0, id: 1 << 62, proven: true, expiry: defaultExpiry, seen: -1}
	var runs []*run
	for i := range int64(3) {
		if err := l.push(batchesAt(i*10, 1, 10, now()), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		r, b, acks := l.next(time.Now())
		if b == nil || acks != acksLeader {
			t.Fatalf("nothing to send, acks %d", acks)
		}
		l.take(r, b, acks)
		runs = append(runs, r)
	}
	l.settle(runs[0], 0, 10, outcome{base: 5})
	if out := l.deliver(nil); len(out) != 0 {
		t.Fatalf("%d results while a batch is under way", len(out))
	}
	if _, b, _ := l.next(time.Now()); b != nil {
		t.Error("something is sent after a failure")
	}
	l.settle(runs[1], 10, 20, outcome{base: 15})
	out := l.deliver(nil)
	if len(out) != 3 {
		t.Fatalf("%d results, want 3", len(out))
	}
	for i, d := range out {
		var o *cluster.OffsetError
		switch displaced := errors.As(d.result.Err, &o); {
		case i < 2 && (!displaced || !errors.Is(o, cluster.ErrDisplaced) || o.Span != cluster.Span{From: 5, To: 25}):
			t.Errorf("run %d: %v", i, d.result.Err)
		case i == 2 && !errors.Is(d.result.Err, cluster.ErrOutOfOrder):
			t.Errorf("run %d: %v", i, d.result.Err)
		}
	}
}

// A request whose answer was lost may land after Ends has looked: the same batch
// sent again is then a duplicate of our own and no other worker's.
func TestDuplicateOfOurOwn(t *testing.T) {
	for name, k := range map[string]struct {
		unknownTo int64
		want      error
	}{"own": {10, nil}, "another worker's": {0, cluster.ErrFenced}} {
		l := &lane{p: p0, id: 1 << 62, proven: true, expiry: defaultExpiry, seen: -1, unknownTo: k.unknownTo}
		if err := l.push(batchesAt(0, 1, 10, now()), nil, nil); err != nil {
			t.Fatal(err)
		}
		r, b, acks := l.next(time.Now())
		l.take(r, b, acks)
		l.settle(r, 0, 10, outcome{base: 0, duplicate: true})
		out := l.deliver(nil)
		if len(out) != 1 || !errors.Is(out[0].result.Err, k.want) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}
