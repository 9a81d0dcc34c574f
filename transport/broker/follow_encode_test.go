package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// answerOf is the answer that is meant to come out, as kmsg has it.
func answerOf(a *fetchAnswer) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(a.version)
	resp.ErrorCode, resp.SessionID = a.code, a.session
	for _, e := range a.entries {
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != e.name || resp.Topics[n-1].TopicID != e.topic {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = e.name, e.topic
			resp.Topics = append(resp.Topics, topic)
		}
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.ErrorCode = e.partition, e.code
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset = e.mark, e.stable, e.start
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = e.diverging.Epoch, e.diverging.EndOffset
		p.RecordBatches = append([]byte{}, bytes.Join(e.records, nil)...)
		last := &resp.Topics[len(resp.Topics)-1]
		last.Partitions = append(last.Partitions, p)
	}
	return resp
}

// noCut is no diverging epoch.
var noCut = cluster.EpochEnd{Epoch: -1, EndOffset: -1}

// TestFetchAnswer: what goes out is, byte for byte, what kmsg writes, and the records
// in it are not copied.
func TestFetchAnswer(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 300), bytes.Repeat([]byte{2}, 70_000)
	a, b := cluster.TopicID{1}, cluster.TopicID{2}
	named := func(version int16, id cluster.TopicID, n int32) fetchKey {
		if version < 13 {
			return fetchKey{name: fmt.Sprint("topic-", id[0]), partition: n}
		}
		return fetchKey{topic: id, partition: n}
	}
	for _, version := range []int16{12, 13, 16, 18} {
		for name, answer := range map[string]*fetchAnswer{
			"nothing": {session: 77},
			"refused": {code: 71},
			"mixed": {session: 5, entries: []entry{
				{fetchKey: named(version, a, 0), mark: 10, stable: 9, start: 2, diverging: noCut, records: [][]byte{one, two, one}, size: 70_600},
				{fetchKey: named(version, a, 7), code: 6, mark: -1, stable: -1, start: -1, diverging: noCut},
				{fetchKey: named(version, b, 1), mark: 1 << 40, stable: 1 << 40, start: 0, diverging: cluster.EpochEnd{Epoch: 3, EndOffset: 1 << 35}},
				{fetchKey: named(version, a, 1), mark: 10, diverging: noCut, records: [][]byte{one}, size: 300},
			}},
		} {
			answer.version = version
			var w fetchWriter
			for range 2 { // the second time with buffers that were used
				w.encode(-3, answer)
			}
			want := binary.BigEndian.AppendUint32(nil, 0xfffffffd)
			want = answerOf(answer).AppendTo(append(want, 0))
			want = append(binary.BigEndian.AppendUint32(nil, uint32(len(want))), want...)
			if got := bytes.Join(w.vec, nil); !bytes.Equal(got, want) {
				t.Errorf("version %d, %s:\n%x\nwant\n%x", version, name, got[:min(len(got), 200)], want[:min(len(want), 200)])
			}
			if name == "mixed" && &w.vec[1][0] != &one[0] {
				t.Error("records were copied")
			}
		}
	}
}

// TestFetchAnswerOverAnything: a connection that is no TCP one gets the same bytes.
func TestFetchAnswerOverAnything(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	a := &fetchAnswer{version: 17, session: 1, entries: []entry{
		{fetchKey: fetchKey{topic: cluster.TopicID{1}}, diverging: noCut, records: [][]byte{make([]byte, 100), make([]byte, 50_000)}, size: 50_100},
	}}
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(far)
		got <- b
	}()
	var w, same fetchWriter
	if err := w.write(near, time.Minute, 9, a); err != nil {
		t.Fatal(err)
	}
	near.Close()
	same.encode(9, a)
	if !bytes.Equal(<-got, bytes.Join(same.vec, nil)) {
		t.Error("other bytes")
	}
}

// TestFetchAnswerAllocates nothing, once its buffers have their size.
func TestFetchAnswerAllocates(t *testing.T) {
	a := &fetchAnswer{version: 17}
	for n := range int32(50) {
		a.entries = append(a.entries, entry{fetchKey: fetchKey{topic: cluster.TopicID{1}, partition: n}, diverging: noCut, records: [][]byte{{1}, {2}}, size: 2})
	}
	var w fetchWriter
	w.encode(1, a)
	if n := testing.AllocsPerRun(100, func() { w.encode(1, a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
