package transporttest

import (
	"errors"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
)

var sourceChecks = []check{
	{"leaders", needsSource, leaders},
	{"offsets of the source", needsSource, sourceOffsets},
	{"ends of epochs", needsSource, epochEnds},
	{"reading the source", needsSource, sourceReading},
	{"topics of the source", needsSource, sourceTopics},
}

// fed is a partition of the source with n batches of size records, which it returns.
func (k *kit) fed(n, size int) (cluster.Partition, []cluster.Batch) {
	k.Helper()
	p := k.topic(1)[0]
	all := k.run(0, n, size)
	k.feed(p, all...)
	return p, all
}

// feed has batches written at the end of a partition; they have to belong there.
func (k *kit) feed(p cluster.Partition, batches ...cluster.Batch) {
	k.Helper()
	var raw [][]byte
	for _, b := range copies(batches) {
		h := batch.Header(b.Bytes)
		h.Patch(batch.Patch{LeaderEpoch: cluster.NoEpoch, ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(), BaseSequence: h.BaseSequence()})
		raw = append(raw, h)
	}
	if err := k.end.Produce(k.ctx, p, raw...); err != nil {
		k.Fatalf("producing to %v: %v", p, err)
	}
}

// leader is a partition's, looked up afresh.
func (k *kit) leader(p cluster.Partition) fetcher.LeaderAnswer {
	k.Helper()
	answers, err := k.from.Leaders(k.ctx, []cluster.Partition{p}, true)
	if err != nil || len(answers) != 1 || answers[0].Err != nil || answers[0].Broker < 0 {
		k.Fatalf("leader of %v: %+v, %v", p, answers, err)
	}
	return answers[0]
}

func leaders(k *kit) {
	ps := k.topic(3)
	no := cluster.Partition{Topic: unique("absent")}
	for _, fresh := range []bool{true, false} {
		answers, err := k.from.Leaders(k.ctx, []cluster.Partition{ps[2], no, ps[0], {Topic: ps[0].Topic, Partition: 99}}, fresh)
		if err != nil || len(answers) != 4 {
			k.Fatalf("%d answers: %v", len(answers), err)
		}
		for i, a := range answers {
			absent := i%2 == 1
			switch {
			case absent && !errors.Is(a.Err, cluster.ErrUnknownTopic):
				k.Errorf("a partition that is not there: %+v", a)
			case !absent && (a.Err != nil || a.Broker < 0):
				k.Errorf("leader: %+v", a)
			}
		}
		if answers[0].TopicID != answers[2].TopicID {
			k.Errorf("one topic with two ids: %+v", answers)
		}
	}
}

func sourceOffsets(k *kit) {
	p, _ := k.fed(3, 4)
	no := cluster.Partition{Topic: unique("absent")}
	answers, err := k.from.Offsets(k.ctx, []cluster.Partition{no, p})
	if err != nil || len(answers) != 2 || !errors.Is(answers[0].Err, cluster.ErrUnknownTopic) || answers[1].Err != nil {
		k.Fatalf("%+v, %v", answers, err)
	}
	if got := answers[1].Offsets; got != (cluster.Offsets{HighWatermark: 12}) {
		k.Errorf("%+v, want [0,12)", got)
	}
}

// epochEnds is OffsetForLeaderEpoch: the present epoch ends at the log end, none ends
// above it, and who believes in another leader epoch is told so.
func epochEnds(k *kit) {
	p, _ := k.fed(2, 3)
	now := k.leader(p).Epoch
	ask := func(current, epoch int32) fetcher.EpochAnswer {
		answers, err := k.from.EpochEnds(k.ctx, []fetcher.EpochQuery{{Partition: p, Current: current, Epoch: epoch}})
		if err != nil || len(answers) != 1 {
			k.Fatalf("%+v, %v", answers, err)
		}
		return answers[0]
	}
	for _, current := range []int32{cluster.NoEpoch, now} {
		if a := ask(current, now); a.Err != nil || a.EpochEnd != (cluster.EpochEnd{Epoch: now, EndOffset: 6}) {
			k.Errorf("the present epoch: %+v, want its end at 6", a)
		}
	}
	if a := ask(cluster.NoEpoch, now+5); a.Err == nil && a.EndOffset != -1 {
		k.Errorf("an epoch that has not been: %+v", a)
	}
	if a := ask(now+5, now); !errors.Is(a.Err, cluster.ErrLeaderEpoch) {
		k.Errorf("asked with a leader epoch that has not been: %+v", a)
	}
	if k.end.Elect == nil {
		return
	}
	k.end.Elect(k.TB, p)
	k.feed(p, k.batch(6, 1))
	if a := ask(cluster.NoEpoch, now); a.Err != nil || a.EpochEnd != (cluster.EpochEnd{Epoch: now, EndOffset: 6}) {
		k.Errorf("the epoch before: %+v, want its end at 6", a)
	}
	if a := ask(now, now); !errors.Is(a.Err, cluster.ErrLeaderEpoch) {
		k.Errorf("asked with the leader epoch before: %+v", a)
	}
}

func sourceReading(k *kit) {
	p, all := k.fed(4, 5)
	got := k.readAll(k.from, p, cluster.Offsets{HighWatermark: 20})
	k.sameRecords(all, got)
	b, err := k.from.Read(k.ctx, p, 7, 1)
	if err != nil || len(b) == 0 || batch.Header(b).Base() != 5 {
		k.Errorf("read at 7: %d bytes, %v, want the batch at 5", len(b), err)
	}
	if b, err := k.from.Read(k.ctx, p, 20, 1<<20); err != nil || len(b) != 0 {
		k.Errorf("read at the end: %d bytes, %v", len(b), err)
	}
	if _, err := k.from.Read(k.ctx, p, 21, 1<<20); !errors.Is(err, cluster.ErrOutOfRange) {
		k.Errorf("read behind the end: %v", err)
	}
}

// sameRecords compares without the epochs, which are the source's own.
func (k *kit) sameRecords(want, got []cluster.Batch) {
	k.Helper()
	kept := k.traits
	k.traits.KeepsEpochs = false
	defer func() { k.traits = kept }()
	if diff := cmp.Diff(k.shown(want, 0), k.shown(got, 0)); diff != "" {
		k.Errorf("not what was produced (-want +got):\n%s", diff)
	}
}

func sourceTopics(k *kit) {
	p := k.topic(2)[0]
	all, err := k.from.Topics(k.ctx)
	if err != nil {
		k.Fatal(err)
	}
	for _, t := range all {
		if t.Name == p.Topic {
			if t.Partitions != 2 || t.Internal || t.ID != k.leader(p).TopicID {
				k.Errorf("%+v", t)
			}
			return
		}
	}
	k.Errorf("%s is not listed", p.Topic)
}
