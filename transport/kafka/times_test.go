package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

func TestOffsetsForTime(t *testing.T) {
	f := fake(t, 3, "t", 3)
	testTimes(t, open(t, f.ListenAddrs()), "t")
}

func TestRealOffsetsForTime(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		topic := unique("times")
		k.CreateTopic(t, topic, 3, 1, nil)
		testTimes(t, open(t, k.Bootstrap()), topic)
	})
}

// testTimes: partition 0 has records 0 to 9 at one time and 10 to 14 an hour later,
// partition 1 all of its own half an hour later, partition 2 none.
func testTimes(t *testing.T, c *Cluster, topic string) {
	ctx := within(t, 30*time.Second)
	at := func(p int32) cluster.Partition { return cluster.Partition{Topic: topic, Partition: p} }
	hour := time.Hour.Milliseconds()
	first := now() - 10*hour
	for p := range int32(3) {
		beginAt(t, c, stretchOf(at(p)))
	}
	mustAppend(t, c, at(0), append(batchesAt(0, 2, 5, first), batchesAt(10, 1, 5, first+hour)...))
	mustAppend(t, c, at(1), batchesAt(0, 2, 5, first+hour/2))
	all := []cluster.Partition{at(2), at(1), at(0)}
	for name, tt := range map[string]struct {
		ms   int64
		want [3]int64
	}{
		"long before": {first - hour, [3]int64{-1, 0, 0}}, "before 1970": {-2, [3]int64{-1, 0, 0}},
		"exactly": {first, [3]int64{-1, 0, 0}}, "one later": {first + 1, [3]int64{-1, 0, 10}},
		"between": {first + hour/2 + 1, [3]int64{-1, -1, 10}}, "the last": {first + hour, [3]int64{-1, -1, 10}},
		"after all": {first + hour + 1, [3]int64{-1, -1, -1}},
	} {
		answers, err := c.OffsetsForTime(ctx, all, tt.ms)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if a.Err != nil || a.Offset != tt.want[i] {
				t.Errorf("%s: %v: %+v, want %d", name, all[i], a, tt.want[i])
			}
		}
	}
	answers, err := c.OffsetsForTime(ctx, []cluster.Partition{{Topic: topic, Partition: 7}, at(0)}, first)
	if err != nil || !errors.Is(answers[0].Err, cluster.ErrUnknownTopic) || answers[0].Offset != -1 || answers[1].Err != nil || answers[1].Offset != 0 {
		t.Errorf("one that is not there: %+v %v", answers, err)
	}
}
