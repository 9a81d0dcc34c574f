package kafka

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// fetchLog notes the fetch requests a fake broker gets.
type fetchLog struct {
	mu   sync.Mutex
	seen []fetchSeen
}

type fetchSeen struct {
	version                 int16
	session, epoch          int32
	partitions, forgotten   int
	replica, isolationLevel int
}

func watchFetches(f *kfake.Cluster) *fetchLog {
	l := &fetchLog{}
	f.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		r := kreq.(*kmsg.FetchRequest)
		s := fetchSeen{version: r.Version, session: r.SessionID, epoch: r.SessionEpoch, replica: int(r.ReplicaID), isolationLevel: int(r.IsolationLevel)}
		for _, t := range r.Topics {
			s.partitions += len(t.Partitions)
		}
		for _, t := range r.ForgottenTopics {
			s.forgotten += len(t.Partitions)
		}
		l.mu.Lock()
		l.seen = append(l.seen, s)
		l.mu.Unlock()
		return nil, nil, false
	})
	return l
}

func (l *fetchLog) last() fetchSeen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[len(l.seen)-1]
}

func want(t *testing.T, c *Cluster, p cluster.Partition, offset int64) fetcher.Want {
	t.Helper()
	l, err := c.Leaders(within(t, 10*time.Second), []cluster.Partition{p}, false)
	if err != nil || l[0].Err != nil {
		t.Fatal(err, l)
	}
	return fetcher.Want{Partition: p, TopicID: l[0].TopicID, Offset: offset, LeaderEpoch: l[0].Epoch, LastEpoch: cluster.NoEpoch, MaxBytes: 1 << 20}
}

func fetch(t *testing.T, s fetcher.Session, req *fetcher.FetchRequest) *fetcher.FetchResponse {
	t.Helper()
	req.MaxBytes, req.MinBytes = 1<<20, 1
	if req.MaxWait == 0 {
		req.MaxWait = 50 * time.Millisecond
	}
	resp, err := s.Fetch(within(t, 20*time.Second), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resp.Release)
	return resp
}

// oneTopic fills a topic of one fake broker.
func oneTopic(t *testing.T, partitions int32, records int, opts ...kfake.Opt) (*kfake.Cluster, *Cluster) {
	f := fake(t, 1, "t", partitions, opts...)
	c := open(t, f.ListenAddrs())
	for i := range partitions {
		p := cluster.Partition{Topic: "t", Partition: i}
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, batchesAt(0, records, 1, now()))
	}
	return f, c
}

func TestSessionIsIncremental(t *testing.T) {
	for _, k := range []struct {
		name string
		opts []kfake.Opt
		max  int16
	}{
		{"topic ids", nil, 18},
		{"names", []kfake.Opt{kfake.MaxVersions(kversion.V3_0_0())}, 12},
		{"before zstd", []kfake.Opt{kfake.MaxVersions(kversion.V2_0_0())}, 9},
	} {
		t.Run(k.name, func(t *testing.T) {
			if k.max == 9 {
				testSessions(t, k.opts, k.max, false)
				return
			}
			testSessions(t, k.opts, k.max, true)
		})
	}
}

func testSessions(t *testing.T, opts []kfake.Opt, version int16, produce bool) {
	f := fake(t, 1, "t", 3, opts...)
	c := open(t, f.ListenAddrs())
	if produce {
		for i := range int32(3) {
			p := cluster.Partition{Topic: "t", Partition: i}
			beginAt(t, c, stretchOf(p))
			mustAppend(t, c, p, batchesAt(0, 4, 1, now()))
		}
	}
	log := watchFetches(f)
	s, err := c.Open(within(t, 10*time.Second), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	req := &fetcher.FetchRequest{}
	for i := range int32(3) {
		req.Changed = append(req.Changed, want(t, c, cluster.Partition{Topic: "t", Partition: i}, 0))
	}
	resp := fetch(t, s, req)
	if got := log.last(); got.session != 0 || got.epoch != 0 || got.partitions != 3 || got.isolationLevel != 0 || got.version > version || got.version < version-1 {
		t.Errorf("first request: %+v", got)
	}
	if len(resp.Partitions) != 3 {
		t.Fatalf("%d partitions in the answer", len(resp.Partitions))
	}
	for _, p := range resp.Partitions {
		if p.Partition.Topic != "t" {
			t.Errorf("topic %q", p.Partition.Topic)
		}
		n := 0
		for w := batch.Walk(p.Records); w.Next(); n++ {
		}
		if wantN := map[bool]int{true: 4}[produce]; n != wantN || p.Err != nil || p.Diverging.EndOffset != -1 || p.Leader.Broker != -1 || p.HighWatermark != int64(wantN) {
			t.Errorf("%v: %d batches, %+v", p.Partition, n, p)
		}
	}
	w := req.Changed[1]
	w.Offset = 4 * int64(map[bool]int{true: 1}[produce])
	fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{w}, Forgotten: []cluster.Partition{{Topic: "t", Partition: 0}}})
	if got := log.last(); got.session == 0 || got.epoch != 1 || got.partitions != 1 || got.forgotten != 1 {
		t.Errorf("second request: %+v", got)
	}
	fetch(t, s, &fetcher.FetchRequest{})
	if got := log.last(); got.epoch != 2 || got.partitions != 0 || got.forgotten != 0 {
		t.Errorf("third request: %+v", got)
	}
}

// A session that the broker lost starts again inside Fetch with all that is wanted.
func TestSessionLost(t *testing.T) {
	for _, code := range []int16{70, 71, 106} {
		f, c := oneTopic(t, 3, 2)
		s, err := c.Open(within(t, 10*time.Second), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		req := &fetcher.FetchRequest{}
		for i := range int32(3) {
			req.Changed = append(req.Changed, want(t, c, cluster.Partition{Topic: "t", Partition: i}, 2))
		}
		fetch(t, s, req)
		f.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			resp := kreq.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = code
			return resp, nil, true
		})
		log := watchFetches(f)
		back := req.Changed[2]
		back.Offset = 0
		resp := fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{back}, Forgotten: []cluster.Partition{{Topic: "t", Partition: 0}}})
		if got := log.last(); got.session != 0 || got.epoch != 0 || got.partitions != 2 {
			t.Errorf("after %d: %+v", code, got)
		}
		found := false
		for _, p := range resp.Partitions {
			if p.Partition.Partition == 2 {
				found = len(p.Records) > 0
			}
		}
		if !found {
			t.Errorf("after %d the changed partition brought nothing", code)
		}
		fetch(t, s, &fetcher.FetchRequest{})
		if got := log.last(); got.epoch != 1 {
			t.Errorf("after %d the new session does not go on: %+v", code, got)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	f, c := oneTopic(t, 1, 3)
	s, err := c.Open(within(t, 10*time.Second), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, k := range []struct {
		code int16
		want error
	}{
		{6, cluster.ErrNotLeader}, {74, cluster.ErrLeaderEpoch}, {75, cluster.ErrLeaderEpoch}, {1, cluster.ErrOutOfRange},
		{76, cluster.ErrCompression}, {100, cluster.ErrUnknownTopic}, {103, cluster.ErrTopicReplaced}, {29, cluster.ErrAuthorization},
	} {
		f.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			req := kreq.(*kmsg.FetchRequest)
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			for _, rt := range req.Topics {
				tp := kmsg.NewFetchResponseTopic()
				tp.TopicID = rt.TopicID
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode = 0, k.code
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 0, 44
				tp.Partitions = append(tp.Partitions, p)
				resp.Topics = append(resp.Topics, tp)
			}
			return resp, nil, true
		})
		resp := fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{want(t, c, p0, 0)}})
		if len(resp.Partitions) != 1 || !errors.Is(resp.Partitions[0].Err, k.want) || resp.Partitions[0].Leader.Epoch != 44 {
			t.Errorf("code %d: %+v", k.code, resp.Partitions)
		}
	}
}

// An empty fetch waits at the broker; Close ends it at once.
func TestCloseUnblocksFetch(t *testing.T) {
	f, c := oneTopic(t, 1, 1)
	log := watchFetches(f)
	s, err := c.Open(within(t, 10*time.Second), 0)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	var over atomic.Bool
	go func() {
		_, err := s.Fetch(t.Context(), &fetcher.FetchRequest{Changed: []fetcher.Want{want(t, c, p0, 1)}, MaxWait: time.Hour, MinBytes: 1, MaxBytes: 1 << 20})
		over.Store(true)
		failed <- err
	}()
	until(t, func() bool { log.mu.Lock(); defer log.mu.Unlock(); return len(log.seen) > 0 })
	if over.Load() {
		t.Fatal("Fetch did not wait")
	}
	s.Close()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("Fetch succeeded on a closed session")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Fetch still waits")
	}
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("does not happen")
		}
	}
}

func TestRead(t *testing.T) {
	f := fake(t, 3, "t", 1)
	c := open(t, f.ListenAddrs())
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, batchesAt(0, 10, 100, now()))
	for _, k := range []struct {
		offset int64
		first  int64
		max    int32
	}{{0, 0, 1}, {150, 100, 1}, {999, 900, 1 << 20}, {300, 300, 5000}} {
		b, err := c.Read(within(t, 10*time.Second), p0, k.offset, k.max)
		if err != nil || len(b) == 0 || batch.Header(b).Base() != k.first {
			t.Fatalf("read at %d: %d bytes, %v", k.offset, len(b), err)
		}
		w := batch.Walk(b)
		for w.Next() {
			if err := w.Header().Check(); err != nil {
				t.Error(err)
			}
		}
		if len(w.Rest()) > 0 || w.Err() != nil {
			t.Errorf("read at %d ends with %d bytes of a batch", k.offset, len(w.Rest()))
		}
	}
	if b, err := c.Read(within(t, 10*time.Second), p0, 1000, 100); err != nil || len(b) != 0 {
		t.Errorf("at the end: %d bytes, %v", len(b), err)
	}
	if _, err := c.Read(within(t, 10*time.Second), p0, 1001, 100); !errors.Is(err, cluster.ErrOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
	if err := f.MoveTopicPartition("t", 0, (f.LeaderFor("t", 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Read(within(t, 10*time.Second), p0, 0, 100); err != nil || len(b) == 0 {
		t.Errorf("after a leader move: %d bytes, %v", len(b), err)
	}
	if _, err := c.Read(within(t, 10*time.Second), cluster.Partition{Topic: "none"}, 0, 1); !errors.Is(err, cluster.ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
}

func TestOffsetsAndEpochs(t *testing.T) {
	f := fake(t, 3, "t", 6)
	c := open(t, f.ListenAddrs())
	var ps []cluster.Partition
	for i := range int32(6) {
		p := cluster.Partition{Topic: "t", Partition: i}
		ps = append(ps, p)
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, batchesAt(0, int(i)+1, 10, now()))
	}
	cuts := []fetcher.Cut{{Partition: ps[2], Offset: 20}, {Partition: ps[0], Offset: 5000}, {Partition: ps[3], Offset: 0}}
	for _, err := range c.Trim(within(t, 10*time.Second), cuts) {
		if err != nil {
			t.Fatal(err)
		}
	}
	asked := append(shuffled(ps), cluster.Partition{Topic: "none"})
	answers, err := c.Offsets(within(t, 20*time.Second), asked)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range asked {
		a := answers[i]
		if p.Topic == "none" {
			if !errors.Is(a.Err, cluster.ErrUnknownTopic) {
				t.Errorf("unknown topic: %+v", a)
			}
			continue
		}
		start := map[int32]int64{2: 20, 0: 10}[p.Partition]
		if a.Err != nil || a.HighWatermark != int64(p.Partition+1)*10 || a.LogStart != start {
			t.Errorf("%v: %+v", p, a)
		}
	}
	leaders, _ := c.Leaders(within(t, 10*time.Second), ps[:1], false)
	ends, err := c.EpochEnds(within(t, 10*time.Second), []fetcher.EpochQuery{
		{Partition: ps[0], Current: leaders[0].Epoch, Epoch: leaders[0].Epoch},
		{Partition: ps[1], Current: leaders[0].Epoch + 7, Epoch: 0},
	})
	if err != nil || ends[0].Err != nil || ends[0].EndOffset != 10 || !errors.Is(ends[1].Err, cluster.ErrLeaderEpoch) {
		t.Errorf("%+v %v", ends, err)
	}
	for _, err := range c.Truncate(t.Context(), cuts) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
}
