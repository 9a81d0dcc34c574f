package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The framing laid out by hand is what kmsg reads as a produce request.
func TestFraming(t *testing.T) {
	c := open(t, []string{"broker.invalid:9092"})
	for _, n := range []int{1, 2, 7, 300} {
		r := newRequest(newPipe(c, pipeKey{1, acksAll}))
		want := map[cluster.Partition][]byte{}
		for i := range n {
			p := cluster.Partition{Topic: fmt.Sprint("topic-", i%5), Partition: int32(i)}
			b := bytes.Repeat([]byte{byte(i)}, 61+i*50)
			r.items = append(r.items, item{lane: &lane{p: p}, bytes: b})
			want[p] = b
		}
		r.lay()
		req := kmsg.NewPtrProduceRequest()
		req.Version = produceVersion
		if err := req.ReadFrom(bytes.Join(r.call.Body, nil)); err != nil {
			t.Fatal(err)
		}
		if req.Acks != acksAll || req.TransactionID != nil || req.TimeoutMillis <= 0 || len(req.Topics) != min(n, 5) {
			t.Errorf("%d topics for %d batches, acks %d", len(req.Topics), n, req.Acks)
		}
		got := map[cluster.Partition][]byte{}
		for _, rt := range req.Topics {
			for _, rp := range rt.Partitions {
				got[cluster.Partition{Topic: rt.Topic, Partition: rp.Partition}] = rp.Records
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Whatever a broker sends as a fetch answer, records and names in what is handed
// on are pieces of the frame or the caller's own, and nothing panics.
func FuzzFetchAnswer(f *testing.F) {
	id := cluster.TopicID{1}
	for _, version := range []int16{12, 17} {
		a := kmsg.NewPtrFetchResponse()
		a.Version = version
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = "t", id
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.RecordBatches = 10, batchesAt(0, 2, 3, 5)[0].Bytes
		rp.DivergingEpoch.EndOffset = 4
		rt.Partitions = append(rt.Partitions, rp)
		a.Topics = append(a.Topics, rt)
		f.Add(a.AppendTo(nil), version)
	}
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		if version < 4 || version > maxFetch {
			return
		}
		w := fetcher.Want{Partition: cluster.Partition{Topic: "t"}, TopicID: id}
		s := &session{version: version, wanted: map[cluster.Partition]fetcher.Want{w.Partition: w}, learn: func(cluster.Partition, cluster.Leader) {},
			byID: map[cluster.TopicID]string{id: "t"}, byName: map[string]namedTopic{"t": {"t", id}}}
		s.req.Version, s.answer.Version = version, version
		if s.answer.UnsafeReadFrom(b) != nil {
			return
		}
		all := s.partitions(b)
		for _, p := range all {
			if len(p.Records) > 0 && &b[p.At] != &p.Records[0] {
				t.Errorf("%v: its records are not at %d", p.Partition, p.At)
			}
		}
		clear(b) // the frame is used again
		for _, p := range all {
			if p.Partition.Topic != "t" {
				t.Errorf("topic %q was not asked for", p.Partition.Topic)
			}
		}
	})
}
