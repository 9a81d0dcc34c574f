package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// threeNodes is the cluster of the tests that move leaders.
func threeNodes(t *testing.T, version string) *kafkatest.Cluster {
	return kafkatest.Shared(t, kafkatest.Options{Version: version, Nodes: 3, Config: map[string]string{
		"auto.leader.rebalance.enable": "false", "broker.session.timeout.ms": "4000",
	}})
}

// moveLeader makes another replica the preferred one and elects it.
func moveLeader(t *testing.T, k *kafkatest.Cluster, p cluster.Partition, replicas []int32) {
	t.Helper()
	cl := k.Client(t)
	assign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	at := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	at.Topic = p.Topic
	ap := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	ap.Partition, ap.Replicas = p.Partition, replicas
	at.Partitions = append(at.Partitions, ap)
	assign.Topics, assign.TimeoutMillis = append(assign.Topics, at), 10_000
	if r, err := assign.RequestWith(t.Context(), cl); err != nil || r.ErrorCode != 0 {
		t.Fatal(r, err)
	}
	kafkatest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		elect := kmsg.NewPtrElectLeadersRequest()
		elect.TimeoutMillis = 10_000
		et := kmsg.NewElectLeadersRequestTopic()
		et.Topic, et.Partitions = p.Topic, []int32{p.Partition}
		elect.Topics = append(elect.Topics, et)
		if _, err := elect.RequestWith(ctx, cl); err != nil {
			return err
		}
		meta := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = &p.Topic
		meta.Topics = append(meta.Topics, mt)
		r, err := meta.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		if got := r.Topics[0].Partitions[0].Leader; got != replicas[0] {
			return fmt.Errorf("leader is %d, want %d", got, replicas[0])
		}
		return nil
	})
}

// Leaders move while batches are under way: every batch lands once, at its offset,
// and the stretch goes on at each new leader (I4).
func TestRealLeaderChange(t *testing.T) {
	k := threeNodes(t, "4.4.0")
	p := cluster.Partition{Topic: unique("moving")}
	k.CreateTopic(t, p.Topic, 1, 3, map[string]string{"min.insync.replicas": "2"})
	c := open(t, k.Bootstrap())
	end := beginAt(t, c, stretchOf(p)).LogEnd
	moves := make(chan struct{})
	go func() {
		defer close(moves)
		for i := range 3 {
			a := int32(i%3) + 1
			moveLeader(t, k, p, []int32{a, a%3 + 1, (a+1)%3 + 1})
		}
	}()
	began := time.Now()
	end = appendThrough(t, c, p, end, 50, moves)
	t.Logf("%d offsets in %v", end, time.Since(began))
	landedWhole(t, c, p, end)
}

// appendThrough appends run after run, and after each failure goes on where Ends
// says, until the trouble is over and more runs have landed.
func appendThrough(t *testing.T, c *Cluster, p cluster.Partition, end int64, more int, over <-chan struct{}) int64 {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for more > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("no progress behind %d", end)
		}
		if r := appendRun(t, c, p, batchesAt(end, 3, 4, now())); r.Err == nil {
			end += 12
			select {
			case <-over:
				more--
			default:
			}
			continue
		} else if errors.Is(r.Err, cluster.ErrDisplaced) || !cluster.Retriable(r.Err) {
			t.Fatal(r.Err)
		}
		e := endOf(t, c, stretchOf(p))
		for e.Err != nil && time.Now().Before(deadline) {
			if !cluster.Retriable(e.Err) || errors.Is(e.Err, cluster.ErrFenced) {
				t.Fatal(e.Err)
			}
			e = endOf(t, c, stretchOf(p))
		}
		end = e.LogEnd
	}
	return end
}

// landedWhole waits for the high watermark and reads everything.
func landedWhole(t *testing.T, c *Cluster, p cluster.Partition, end int64) {
	t.Helper()
	kafkatest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		ends, err := c.LogOffsets(ctx, p)
		if err == nil && ends.HighWatermark < end {
			err = fmt.Errorf("%+v, appended to %d", ends, end)
		}
		return err
	})
	checkSequence(t, c, p, end)
}

// The leader dies while batches with acks=1 are under way: what it alone had is
// appended again at its place, and nothing stands twice (I3, I4).
func TestRealLeaderDies(t *testing.T) {
	k := threeNodes(t, "4.4.0")
	p := cluster.Partition{Topic: unique("dying")}
	k.CreateTopic(t, p.Topic, 1, 3, map[string]string{"min.insync.replicas": "2"})
	c := open(t, k.Bootstrap())
	end := beginAt(t, c, stretchOf(p)).LogEnd
	leaders, err := c.Leaders(within(t, 10*time.Second), []cluster.Partition{p}, true)
	if err != nil || leaders[0].Err != nil {
		t.Fatal(err, leaders)
	}
	victim := int(leaders[0].Broker)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		until(t, func() bool {
			l := c.lane(p)
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.end > 200
		})
		k.Kill(victim)
	}()
	end = appendThrough(t, c, p, end, 50, killed)
	leaders, err = c.Leaders(within(t, 10*time.Second), []cluster.Partition{p}, true)
	if err != nil || int(leaders[0].Broker) == victim {
		t.Errorf("leader %+v after the death of %d: %v", leaders, victim, err)
	}
	landedWhole(t, c, p, end)
	k.Restart(victim)
}

// checkSequence: every record at its own offset, none missing.
func checkSequence(t *testing.T, c *Cluster, p cluster.Partition, end int64) {
	t.Helper()
	seen := int64(0)
	eachRecord(t, readAll(t, c, p), func(offset int64, value string) {
		if offset != seen || value != fmt.Sprint("value of ", offset) {
			t.Fatalf("offset %d (expected %d) holds %q", offset, seen, value)
		}
		seen++
	})
	if seen != end {
		t.Errorf("%d records, want %d", seen, end)
	}
}

// Ends and Trim of many partitions over three brokers, and the sessions of all.
func TestRealManyPartitions(t *testing.T) {
	k := threeNodes(t, "4.4.0")
	wide := unique("wide")
	k.CreateTopic(t, wide, 60, 1, nil)
	c := open(t, k.Bootstrap())
	var ss []fetcher.Stretch
	var cuts []fetcher.Cut
	for i := range int32(60) {
		p := cluster.Partition{Topic: wide, Partition: i}
		ss, cuts = append(ss, stretchOf(p)), append(cuts, fetcher.Cut{Partition: p, Offset: 3})
	}
	ends, err := c.Ends(within(t, 30*time.Second), shuffled(ss))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ends {
		if e.Err != nil || e.TopicID.IsZero() {
			t.Fatal(e)
		}
	}
	results := make(chan fetcher.Result, 60)
	for _, s := range shuffled(ss) {
		c.Append(s.Partition, batchesAt(0, 2, 2, now()), nil, func(r fetcher.Result) { results <- r })
	}
	for range 60 {
		if r := wait(t, results); r.Err != nil || r.Next != 4 {
			t.Fatalf("%+v", r)
		}
	}
	for i, err := range c.Trim(within(t, 30*time.Second), shuffled(cuts)) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	fenced, err := c.Fence(within(t, 30*time.Second), shuffled(ss))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fenced {
		if e.Err != nil || e.LogStart != 3 || e.LogEnd != 5 || !e.Stopped {
			t.Fatalf("%+v", e)
		}
	}
}

// A topic that was deleted and created again is not fetched as if it were the old
// one: the fetch names the id.
func TestRealReplacedTopic(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "replaced", nil)
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, batchesAt(0, 2, 5, now()))
		s, err := c.Open(within(t, 10*time.Second), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		old := want(t, c, p, 10)
		fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{old}})
		deleteTopic(t, k, p.Topic)
		k.CreateTopic(t, p.Topic, 1, 1, nil)
		kafkatest.Eventually(t, 20*time.Second, func(context.Context) error {
			resp := fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{old}})
			if len(resp.Partitions) != 1 || resp.Partitions[0].Err == nil {
				return fmt.Errorf("%+v", resp.Partitions)
			}
			if e := resp.Partitions[0].Err; !errors.Is(e, cluster.ErrUnknownTopic) && !errors.Is(e, cluster.ErrTopicReplaced) {
				t.Fatalf("%v", e)
			}
			return nil
		})
		leaders, err := c.Leaders(within(t, 10*time.Second), []cluster.Partition{p}, true)
		if err != nil || leaders[0].Err != nil || leaders[0].TopicID == old.TopicID {
			t.Fatalf("%+v %v", leaders, err)
		}
		// Just after its creation the leader may not know its epoch yet.
		kafkatest.Eventually(t, 20*time.Second, func(context.Context) error {
			resp := fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{want(t, c, p, 0)}})
			switch {
			case len(resp.Partitions) != 1:
				return fmt.Errorf("the new topic in the same session: %+v", resp.Partitions)
			case resp.Partitions[0].Err != nil && !errors.Is(resp.Partitions[0].Err, cluster.ErrLeaderEpoch):
				t.Fatal(resp.Partitions[0].Err)
			case resp.Partitions[0].HighWatermark != 0:
				return fmt.Errorf("%+v", resp.Partitions[0])
			}
			return resp.Partitions[0].Err
		})
		// As a destination it is a new log: another id, nothing of the old one is believed.
		if e := beginAt(t, c, stretchOf(p)); e.LogEnd != 0 || e.TopicID != leaders[0].TopicID {
			t.Errorf("%+v", e)
		}
		mustAppend(t, c, p, batchesAt(0, 2, 5, now()))
	})
}

func deleteTopic(t *testing.T, k *kafkatest.Cluster, name string) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &name
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, rt), []string{name}, 10_000
	r, err := req.RequestWith(t.Context(), k.Client(t))
	if err != nil || r.Topics[0].ErrorCode != 0 {
		t.Fatal(r, err)
	}
}

// A consumer whose last epoch the leader has ended earlier is told where.
func TestRealDivergingEpoch(t *testing.T) {
	k := threeNodes(t, "4.4.0")
	p := cluster.Partition{Topic: unique("diverging")}
	k.CreateTopic(t, p.Topic, 1, 3, nil)
	c := open(t, k.Bootstrap())
	beginAt(t, c, stretchOf(p))
	mustAppend(t, c, p, batchesAt(0, 2, 5, now()))
	leaders, err := c.Leaders(within(t, 10*time.Second), []cluster.Partition{p}, true)
	if err != nil {
		t.Fatal(err)
	}
	first := leaders[0].Epoch
	next := leaders[0].Broker%3 + 1
	moveLeader(t, k, p, []int32{next, next%3 + 1, (next+1)%3 + 1})
	w := fetcher.Want{}
	kafkatest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		l, err := c.Leaders(ctx, []cluster.Partition{p}, true)
		if err == nil && l[0].Broker != next {
			err = errors.New("not moved")
		}
		w = fetcher.Want{Partition: p, TopicID: l[0].TopicID, LeaderEpoch: l[0].Epoch, MaxBytes: 1 << 20}
		return err
	})
	beginAt(t, c, stretchOf(p))
	mustAppend(t, c, p, batchesAt(10, 2, 5, now()))
	s, err := c.Open(within(t, 10*time.Second), next)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w.Offset, w.LastEpoch = 15, first // we claim to have had 15 records of the first epoch
	resp := fetch(t, s, &fetcher.FetchRequest{Changed: []fetcher.Want{w}})
	if len(resp.Partitions) != 1 || resp.Partitions[0].Diverging.Epoch != first || resp.Partitions[0].Diverging.EndOffset != 10 {
		t.Errorf("%+v", resp.Partitions)
	}
	ends, err := c.EpochEnds(within(t, 10*time.Second), []fetcher.EpochQuery{{Partition: p, Current: cluster.NoEpoch, Epoch: first}})
	if err != nil || ends[0].Err != nil || ends[0].EpochEnd != (cluster.EpochEnd{Epoch: first, EndOffset: 10}) {
		t.Errorf("%+v %v", ends, err)
	}
	old, err := c.Open(within(t, 10*time.Second), leaders[0].Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	resp = fetch(t, old, &fetcher.FetchRequest{Changed: []fetcher.Want{{Partition: p, TopicID: w.TopicID, Offset: 10, LeaderEpoch: first, LastEpoch: first, MaxBytes: 1000}}})
	if len(resp.Partitions) != 1 || resp.Partitions[0].Err == nil || resp.Partitions[0].Leader.Broker != next {
		t.Errorf("the old leader's hint: %+v", resp.Partitions)
	}
}
