package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

// led is a real cluster with a member that leads what is named mirrored-….
type led struct {
	k       *kafkatest.Cluster
	cfg     Config
	us      *joined
	control *control
	store   *MemoryOverrides
}

func startLed(t *testing.T, version string, before ...func(*kafkatest.Cluster)) *led {
	t.Helper()
	l := &led{store: new(MemoryOverrides), k: kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3,
		Config: map[string]string{"broker.session.timeout.ms": "3000", "default.replication.factor": "2"}})}
	for _, do := range before { // we come
		do(l.k)
	}
	l.cfg = Config{IDs: IDs{First: 100, Last: 102}, Identities: new(MemoryIdentities), HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		Ours: func(topic string, _ cluster.TopicID, _ int32) bool { return strings.HasPrefix(topic, "mirrored-") }}
	l.up(t)
	return l
}

// up starts our member, again with the same identity.
func (l *led) up(t *testing.T) {
	t.Helper()
	l.us = join(t, l.k, l.cfg)
	l.control = newControl(l.us.Membership, l.store)
	if err := l.us.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// raise waits for all.
func (l *led) raise(ctx context.Context, epochs map[metalog.PartitionID]int32) map[metalog.PartitionID]error {
	return l.control.raise(ctx, epochs, func(metalog.PartitionID) bool { return false }, func(metalog.PartitionID, error) {})
}

func (l *led) image() metalog.Image { return l.us.log.Image() }

// mirrored are all partitions of topics with a prefix.
func (l *led) mirrored(prefix string) []metalog.PartitionID {
	var topics []string
	for topic := range l.image().Topics() {
		if strings.HasPrefix(topic.Name, prefix) {
			topics = append(topics, topic.Name)
		}
	}
	return partitionsOf(l.image(), topics...)
}

// all are the real replicas: nothing was ever appended, so each holds everything.
func (l *led) all(id metalog.PartitionID) []int32 {
	p, _ := l.image().Partition(id)
	return l.us.party().reals(p.Replicas)
}

func none(t *testing.T, what string, failed map[metalog.PartitionID]error) {
	t.Helper()
	if err := failedWith(failed); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// write produces to every partition once, and gives the errors by partition.
func write(ctx context.Context, cl *kgo.Client, i metalog.Image, ids []metalog.PartitionID) map[metalog.PartitionID]error {
	var records []*kgo.Record
	for _, id := range ids {
		records = append(records, &kgo.Record{Topic: topicName(i, id), Partition: id.Partition, Value: []byte("x")})
	}
	failed := make(map[metalog.PartitionID]error)
	for n, r := range cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			failed[ids[n]] = r.Err
		}
	}
	return failed
}

// TestRealControl: partitions come under our leadership, and leave it.
func TestRealControl(t *testing.T) {
	for _, version := range both() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := startLed(t, version)
			l.createAndNarrow(t)
			l.raising(t)
			l.death(t)
			l.handingBack(t)
		})
	}
}

func (l *led) createAndNarrow(t *testing.T) {
	t.Helper()
	ctx := within(t, time.Minute)
	var wanted []cluster.NewTopic
	for n := range 50 {
		wanted = append(wanted, cluster.NewTopic{Name: fmt.Sprintf("mirrored-%02d", n), Partitions: 6, ReplicationFactor: 2,
			Configs: []cluster.TopicConfig{{Name: "min.insync.replicas", Value: "2"}, {Name: "retention.ms", Value: "1000000"}}})
	}
	wanted[0].ReplicationFactor, wanted[0].Configs = -1, nil
	began := time.Now()
	for _, err := range l.control.create(ctx, wanted) {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("created 300 partitions of 50 topics in %v", time.Since(began))
	ids := l.mirrored("mirrored-")
	if len(ids) != 300 {
		t.Fatalf("%d partitions", len(ids))
	}
	began = time.Now()
	none(t, "narrow", l.control.narrow(ctx, ids))
	t.Logf("narrowed in %v", time.Since(began))
	leaders := make(map[int32]int)
	for _, id := range ids {
		p, _ := l.image().Partition(id)
		if len(p.Replicas) != 3 || p.Replicas[0] != 100 || p.Leader != 100 || !slices.Equal(p.ISR, []int32{100}) {
			t.Fatalf("%v: %+v", id, p)
		}
		leaders[p.Replicas[1]]++
	}
	for id, n := range leaders {
		if n != 100 {
			t.Errorf("broker %d would lead %d of 300 partitions", id, n)
		}
	}
	if err := l.control.grow(ctx, []cluster.Topic{{Name: "mirrored-01", Partitions: 8}, {Name: "mirrored-02", Partitions: 6}}); err[0] != nil || err[1] != nil {
		t.Fatal(err)
	}
	none(t, "narrow", l.control.narrow(ctx, l.mirrored("mirrored-01")))
	if got := len(l.mirrored("mirrored-01")); got != 8 {
		t.Errorf("%d partitions after growing to 8", got)
	}
	if err := l.control.create(ctx, wanted[1:2])[0]; !errors.Is(err, cluster.ErrTopicExists) {
		t.Errorf("creating a topic again: %v", err)
	}
	all, _ := l.store.Load(ctx, "mirrored-01")
	if own := all["mirrored-01"]; own == nil || *own["min.insync.replicas"] != "2" || own["unclean.leader.election.enable"] != nil {
		t.Errorf("stored of its own: %v", own)
	}
}

func (l *led) raising(t *testing.T) {
	t.Helper()
	ids := l.mirrored("mirrored-")
	for _, far := range []int32{1, 500} {
		p, _ := l.image().Partition(ids[0])
		want := p.LeaderEpoch + far
		began := time.Now()
		none(t, "raise", l.raise(within(t, time.Minute), map[metalog.PartitionID]int32{ids[0]: want}))
		p, _ = l.image().Partition(ids[0])
		t.Logf("one raised by %d to %d in %v", far, p.LeaderEpoch, time.Since(began))
		if p.Leader != 100 || p.LeaderEpoch < want || !slices.Equal(p.ISR, []int32{100}) {
			t.Errorf("after raising to %d: %+v", want, p)
		}
	}
	finish := l.witness(t, ids)
	defer finish()
	want := make(map[metalog.PartitionID]int32)
	for _, id := range ids {
		p, _ := l.image().Partition(id)
		want[id] = p.LeaderEpoch + 10
	}
	began := time.Now()
	none(t, "raise", l.raise(within(t, time.Minute), want))
	t.Logf("300 raised by 10 in %v", time.Since(began))
	l.sameEpochs(t, ids)
}

// dyingMeanwhile: we die while handing back, and go on where we were.
func (l *led) dyingMeanwhile(t *testing.T, ids []metalog.PartitionID) {
	t.Helper()
	for n, after := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
		some := ids[10*n : 10*n+10]
		ctx, cancel := context.WithTimeout(t.Context(), after)
		left := l.control.handBack(ctx, some, l.all)
		cancel()
		if err := l.us.stop(); err != nil {
			t.Fatal(err)
		}
		l.up(t)
		none(t, "handBack", l.control.handBack(within(t, time.Minute), some, l.all))
		t.Logf("died after %v with %d of %d left", after, len(left), len(some))
	}
}

// sameEpochs: the brokers count epochs as we do.
func (l *led) sameEpochs(t *testing.T, ids []metalog.PartitionID) {
	t.Helper()
	want := make(map[string]map[int32]int32)
	for _, id := range ids {
		p, _ := l.image().Partition(id)
		name := topicName(l.image(), id)
		if want[name] == nil {
			want[name] = make(map[int32]int32)
		}
		want[name][id.Partition] = p.LeaderEpoch
	}
	for n := 1; n <= l.k.Nodes(); n++ {
		cl := l.k.Client(t, kgo.SeedBrokers(l.k.Addr(n)))
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			resp, err := cl.SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest())
			if err != nil {
				return err
			}
			for _, topic := range resp.(*kmsg.MetadataResponse).Topics {
				for _, p := range topic.Partitions {
					if e, ok := want[*topic.Topic][p.Partition]; ok && e != p.LeaderEpoch {
						return fmt.Errorf("broker %d has epoch %d of %s-%d, we %d", n, p.LeaderEpoch, *topic.Topic, p.Partition, e)
					}
				}
			}
			return nil
		})
	}
}

// death: nobody leads and nobody writes while we are away, and we lead when we are
// back.
func (l *led) death(t *testing.T) {
	t.Helper()
	outside := observe(t, l.k)
	ids := l.mirrored("mirrored-")
	image := l.image()
	if err := l.us.stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cl := l.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(8*time.Second), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	written := write(within(t, time.Minute), cl, image, ids)
	if len(written) != len(ids) {
		t.Errorf("%d of %d partitions were written to while we were away", len(ids)-len(written), len(ids))
	}
	t.Logf("refused for %v, for example: %v", time.Since(began), failedWith(written))
	seen := outside.Image()
	for _, id := range ids {
		if p, _ := seen.Partition(id); p.Leader != -1 {
			t.Fatalf("while we are away: %+v", p)
		}
	}
	began = time.Now()
	l.up(t)
	none(t, "reclaim", l.control.reclaim(within(t, time.Minute), orphans(l.us.party(), l.image(), func(id metalog.PartitionID) bool { return l.us.ours(l.image(), id) })))
	t.Logf("leading again %v after the start", time.Since(began))
	for _, id := range ids {
		if p, _ := l.image().Partition(id); p.Leader != 100 {
			t.Fatalf("when we are back: %+v", p)
		}
	}
}

func (l *led) handingBack(t *testing.T) {
	t.Helper()
	ctx := within(t, time.Minute)
	ids := l.mirrored("mirrored-")
	began := time.Now()
	none(t, "handBack", l.control.handBack(ctx, ids[:1], l.all))
	t.Logf("one handed back in %v", time.Since(began))
	l.dyingMeanwhile(t, ids[1:31])
	began = time.Now()
	none(t, "handBack", l.control.handBack(ctx, ids, l.all))
	t.Logf("270 handed back in %v", time.Since(began))
	for _, id := range ids {
		p, _ := l.image().Partition(id)
		if slices.Contains(p.Replicas, 100) || p.Leader == 100 || p.Leader < 0 || len(p.ISR) != 2 {
			t.Fatalf("%v: %+v", id, p)
		}
	}
	none(t, "writing", write(ctx, l.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), l.image(), ids))
	for topic, want := range map[string]map[string]string{"mirrored-00": nil, "mirrored-01": {"min.insync.replicas": "2", "retention.ms": "1000000"}} {
		if got := topicConfig(l.image(), topic); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has %v, want %v", topic, got, want)
		}
	}
}
