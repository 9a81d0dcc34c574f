package broker

import (
	"bufio"
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// relayed runs an answer through a relay that puts 0 for 6 and 77 for the session.
func relayed(b []byte, version int16) ([]byte, error) {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	r := fetchRelay{in: bufio.NewReader(bytes.NewReader(b)), out: w, left: int64(len(b)), version: version, session: 77,
		change: func(k fetchKey, p *fetchHead) {
			if p.code == 6 {
				*p = fetchHead{code: 0, highWatermark: 200, lastStable: 190, logStart: 100, preferred: k.partition}
			}
		}}
	err := r.run()
	w.Flush()
	return out.Bytes(), err
}

// sampleFetch has everything that an answer can have.
func sampleFetch(version int16, records int) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.ThrottleMillis, resp.SessionID = version, 3, 5
	for _, name := range []string{"a", "a topic with a name that is longer than all that is read of an answer at one time"} {
		topic := kmsg.NewFetchResponseTopic()
		if topic.Topic = name; version >= 13 {
			topic.Topic, topic.TopicID = "", idOf(name)
		}
		for n, code := range []int16{0, 6, 29, 6} {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica = int32(n), code, 9, 8, 7, -1
			p.RecordBatches = []byte{}
			if code == 0 {
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 4, FirstOffset: 5}, {ProducerID: 6, FirstOffset: 7}}
				p.RecordBatches = bytes.Repeat([]byte("r"), records)
			}
			if code == 6 && version >= 12 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 100, 7
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if version >= 16 {
		resp.Brokers = []kmsg.FetchResponseBroker{{NodeID: 100, Host: "us", Port: 9092}}
	}
	return resp
}

func behindHeader(resp *kmsg.FetchResponse) []byte {
	var b []byte
	if resp.IsFlexible() {
		b = append(b, 0)
	}
	return resp.AppendTo(b)
}

func TestFetchRelay(t *testing.T) {
	for version := int16(fetchFromFollower); version <= 18; version++ {
		resp := sampleFetch(version, 70_000)
		got, err := relayed(behindHeader(resp), version)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		resp.SessionID = 77
		for i := range resp.Topics {
			for _, n := range []int{1, 3} {
				p := &resp.Topics[i].Partitions[n]
				p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica = 0, 200, 190, 100, int32(n)
			}
		}
		if !bytes.Equal(got, behindHeader(resp)) {
			told := kmsg.NewPtrFetchResponse()
			told.Version = version
			err := told.ReadFrom(got[min(1, int(version)/12):])
			t.Errorf("version %d: %v %s", version, err, cmp.Diff(resp, told))
		}
	}
	whole := behindHeader(sampleFetch(12, 70_000))
	for _, cut := range []int{0, 1, 12, 40, len(whole) / 2, len(whole) - 1} {
		if _, err := relayed(whole[:cut], 12); !errors.Is(err, errNoAnswer) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if _, err := relayed(append(whole, 0), 12); !errors.Is(err, errNoAnswer) {
		t.Errorf("a byte too many: %v", err)
	}
}

// FuzzFetchRelay: whatever comes, nothing is invented; and what is an answer leaves
// as one of the same length.
func FuzzFetchRelay(f *testing.F) {
	for version := int16(fetchFromFollower); version <= 18; version++ {
		f.Add(behindHeader(sampleFetch(version, 9)), version)
	}
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		if version < fetchFromFollower || version > 18 {
			return
		}
		got, err := relayed(b, version)
		if len(got) > len(b) || err == nil && len(got) != len(b) {
			t.Errorf("%d bytes became %d: %v", len(b), len(got), err)
		}
	})
}
