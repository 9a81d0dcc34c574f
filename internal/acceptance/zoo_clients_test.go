package acceptance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// What a client makes of what takes the place of offsets without records.
const (
	unseen  = "nothing seen"
	shows   = "shown as records"
	stalled = "stands still"
)

// TestFillersSeen is the table of docs/gaps.md: five records, a filled gap, five more,
// read by five families of clients. A long gap is one that fills a whole fetch of 1 MB.
func TestFillersSeen(t *testing.T) {
	c := destination(t)
	a := invite(t)
	a.patience = 8 * time.Second // others need less than one
	for _, gap := range []struct {
		name string
		fill func(t *testing.T, c *kafkatest.Cluster, topic string)
		want map[string]string // of those who see more than nothing
	}{
		{"markers", func(t *testing.T, c *kafkatest.Cluster, topic string) { mark(t, c, topic, 500) }, map[string]string{"kafka-go": shows}},
		{"long-markers", func(t *testing.T, c *kafkatest.Cluster, topic string) { mark(t, c, topic, 30_000) }, map[string]string{"kafka-go": shows}},
		{"phantoms", func(t *testing.T, c *kafkatest.Cluster, topic string) { haunt(t, c, topic, 500, 20) }, nil},
		{"long-phantoms", func(t *testing.T, c *kafkatest.Cluster, topic string) { haunt(t, c, topic, 30_000, 10) }, map[string]string{"sarama": stalled}},
		{"long-phantoms-with-markers", func(t *testing.T, c *kafkatest.Cluster, topic string) {
			for range 15 {
				haunt(t, c, topic, 20_000, 1)
				mark(t, c, topic, 1)
			}
		}, map[string]string{"kafka-go": shows}},
	} {
		t.Run(gap.name, func(t *testing.T) {
			topic := "seen-" + gap.name
			c.CreateTopic(t, topic, 1, 1, nil)
			put(t, c, topic, 0, 5)
			gap.fill(t, c, topic)
			first := put(t, c, topic, 0, 5)
			p := part{topic: topic, last: map[int32]int64{0: first + 4}, n: 10}
			for _, family := range families {
				t.Run(family, func(t *testing.T) {
					t.Parallel()
					lines, err := a.sees(t, family, c, p)
					got := unseen
					switch {
					case err != nil && strings.Contains(err.Error(), "stands at offset 4 of"):
						got = stalled
					case err != nil:
						t.Fatal(err)
					case len(lines) > 10:
						got = shows
					}
					want := unseen
					if w, ok := gap.want[family]; ok {
						want = w
					}
					if got != want {
						t.Errorf("%d offsets without records: %s, docs/gaps.md says %s", first-5, got, want)
					}
					for i, l := range lines {
						if at := int64(i); got == unseen && l.Offset != at && l.Offset != at-5+first {
							t.Errorf("line %d: %v", i, l)
						}
					}
				})
			}
		})
	}
}

// mark writes abort markers of a producer that has no transaction.
func mark(t *testing.T, c *kafkatest.Cluster, topic string, n int) {
	t.Helper()
	cl := c.Client(t)
	for n > 0 {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		for range min(n, 1000) {
			one := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			one.Topic, one.Partitions = topic, []int32{0}
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			m.ProducerID, m.Topics = 1<<62, append(m.Topics, one)
			req.Markers = append(req.Markers, m)
		}
		resp, err := cl.Broker(1).Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range resp.(*kmsg.WriteTxnMarkersResponse).Markers {
			if err := kerr.ErrorForCode(m.Topics[0].Partitions[0].ErrorCode); err != nil {
				t.Fatal(err)
			}
		}
		n -= len(req.Markers)
	}
}

// haunt writes batches of phantoms.
func haunt(t *testing.T, c *kafkatest.Cluster, topic string, n, batches int) {
	t.Helper()
	versions := kversion.V3_3_0() // names topics
	cl := c.Client(t, kgo.MaxVersions(versions))
	for range batches {
		part := kmsg.NewProduceRequestTopicPartition()
		h := batch.Header(batch.AppendPhantoms(nil, n, 1_700_000_000_000, nil))
		h.Patch(batch.Patch{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
		part.Records = h
		one := kmsg.NewProduceRequestTopic()
		one.Topic, one.Partitions = topic, append(one.Partitions, part)
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis, req.Topics = -1, 10_000, append(req.Topics, one)
		resp, err := cl.Broker(1).Request(t.Context(), req)
		if err == nil {
			err = kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
		}
		if err != nil {
			t.Fatal(fmt.Errorf("phantoms: %w", err))
		}
	}
}
