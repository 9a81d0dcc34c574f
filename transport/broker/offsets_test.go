package broker

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/wire"
)

func TestListed(t *testing.T) {
	leading := lead.State{Phase: lead.Leading, Epoch: 7, LogStart: 100, LogEnd: 210, HighWatermark: 200, LastStable: 170}
	type answer struct {
		Code   int16
		Offset int64
		Epoch  int32
	}
	tests := []struct {
		name      string
		timestamp int64
		epoch     int32
		isolation int8
		phase     lead.Phase
		want      answer
		looked    bool // up in the log
	}{
		{"latest", -1, 7, 0, lead.Leading, answer{0, 200, 7}, false},
		{"latest, committed", -1, -1, 1, lead.Leading, answer{0, 170, 7}, false},
		{"earliest", -2, 7, 1, lead.Leading, answer{0, 100, 7}, false},
		{"earliest local", -4, 7, 0, lead.Leading, answer{0, 100, 7}, false},
		{"latest tiered", -5, 7, 0, lead.Leading, answer{0, -1, -1}, false},
		{"older epoch", -1, 6, 0, lead.Leading, answer{74, 0, 0}, false},
		{"newer epoch", 5, 8, 0, lead.Leading, answer{75, 0, 0}, false},
		{"gathering", -1, 7, 0, lead.Gathering, answer{6, 0, 0}, false},
		{"closed", -2, 7, 0, lead.Closed, answer{6, 0, 0}, false},
		{"time", 1000, 7, 0, lead.Leading, answer{6, 0, 0}, true},
		{"latest time", -3, 7, 0, lead.Leading, answer{6, 0, 0}, true},
	}
	for _, tt := range tests {
		s := leading
		s.Phase = tt.phase
		p := kmsg.ListOffsetsResponseTopicPartition{ErrorCode: 6}
		told := listed(&p, kmsg.ListOffsetsRequestTopicPartition{Timestamp: tt.timestamp, CurrentLeaderEpoch: tt.epoch}, tt.isolation, s)
		if diff := cmp.Diff(tt.want, answer{p.ErrorCode, p.Offset, p.LeaderEpoch}); diff != "" || told == tt.looked {
			t.Errorf("%s: told %v %s", tt.name, told, diff)
		}
	}
}

func TestEpochEnd(t *testing.T) {
	s := newServer(ServerConfig{}, nil, nil, nil)
	leading, gathering := ledTest(t, s, "t", true), ledTest(t, s, "g", false)
	tests := []struct {
		name           string
		p              *lead.Partition
		current, epoch int32
		code           int16
		want           cluster.EpochEnd
	}{
		{"an old epoch", leading, 7, 3, 0, cluster.EpochEnd{Epoch: 3, EndOffset: 150}},
		{"between two", leading, -1, 5, 0, cluster.EpochEnd{Epoch: 3, EndOffset: 150}},
		{"ours", leading, 7, 7, 0, cluster.EpochEnd{Epoch: 7, EndOffset: 200}},
		{"before all", leading, 7, 2, 0, cluster.EpochEnd{Epoch: 2, EndOffset: 100}},
		{"older belief", leading, 6, 3, 74, cluster.EpochEnd{Epoch: -1, EndOffset: -1}},
		{"newer belief", leading, 8, 3, 75, cluster.EpochEnd{Epoch: -1, EndOffset: -1}},
		{"gathering", gathering, 7, 3, 6, cluster.EpochEnd{Epoch: -1, EndOffset: -1}},
	}
	for _, tt := range tests {
		p := kmsg.OffsetForLeaderEpochResponseTopicPartition{ErrorCode: 6}
		epochEnd(&p, kmsg.OffsetForLeaderEpochRequestTopicPartition{CurrentLeaderEpoch: tt.current, LeaderEpoch: tt.epoch}, tt.p.State(), tt.p.EpochEnd)
		got := cluster.EpochEnd{Epoch: p.LeaderEpoch, EndOffset: p.EndOffset}
		if got != tt.want || p.ErrorCode != tt.code {
			t.Errorf("%s: error %d, %v, want %d, %v", tt.name, p.ErrorCode, got, tt.code, tt.want)
		}
	}
}

// TestOffsetsAreListed: one request for the ends and for times, of what we lead and
// of what others do; times are looked up by the real broker, and where it has no
// replica, by a follower.
func TestOffsetsAreListed(t *testing.T) {
	for _, version := range []int16{1, 5, 7, 11} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			follower := startReal(t)
			follower.answer = func(req kmsg.Request) kmsg.Response { return times(req.(*kmsg.ListOffsetsRequest), "far", 160) }
			r := startReal(t)
			r.answer = func(req kmsg.Request) kmsg.Response { return times(req.(*kmsg.ListOffsetsRequest), "near", 170) }
			s, addr := serveTest(t, r, ServerConfig{})
			s.follower = func(ctx context.Context, broker int32) (*wire.Conn, error) {
				if broker == 3 {
					return nil, fmt.Errorf("broker %d is not the longest", broker)
				}
				host, port, _ := net.SplitHostPort(follower.addr)
				var n int32
				fmt.Sscan(port, &n)
				return wire.Dial(ctx, wire.Addr{Host: host, Port: n}, nil)
			}
			for _, topic := range []string{"near", "far", "end"} {
				ledTest(t, s, topic, true)
			}
			ledTest(t, s, "gathering", false)
			req := kmsg.NewPtrListOffsetsRequest()
			for topic, timestamp := range map[string]int64{"near": 1000, "far": 1000, "end": -1, "gathering": -1, "secret": -1, "theirs": -1} {
				one := kmsg.NewListOffsetsRequestTopic()
				one.Topic = topic
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Timestamp, p.CurrentLeaderEpoch = timestamp, ledEpoch
				one.Partitions = append(one.Partitions, p)
				req.Topics = append(req.Topics, one)
			}
			got := make(map[string]string)
			for _, topic := range do(t, dialTest(t, addr), version, req).(*kmsg.ListOffsetsResponse).Topics {
				p := topic.Partitions[0]
				got[topic.Topic] = fmt.Sprint(p.ErrorCode, " ", p.Timestamp, " ", p.Offset)
			}
			want := map[string]string{"near": "0 1001 170", "far": "0 1001 160", "end": "0 -1 200", "gathering": "6 -1 -1", "secret": "29 -1 -1", "theirs": "0 -1 5"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// times answers as a broker does that has a replica of one topic only.
func times(req *kmsg.ListOffsetsRequest, has string, offset int64) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	for _, asked := range req.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = asked.Topic
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.ErrorCode, p.Timestamp, p.Offset = 6, -1, -1
		switch {
		case asked.Topic == "secret":
			p.ErrorCode = 29
		case asked.Topic == "theirs":
			p.ErrorCode, p.Offset = 0, 5
		case req.ReplicaID == debugReplica && asked.Partitions[0].CurrentLeaderEpoch >= 0:
			p.ErrorCode = 75 // it has not heard of it yet
		case asked.Topic == has && req.ReplicaID == debugReplica && asked.Partitions[0].Timestamp == 1000:
			p.ErrorCode, p.Timestamp, p.Offset = 0, 1001, offset
		}
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// TestTimesBeyondTheEnd: what a follower has and consumers cannot read is not there.
func TestTimesBeyondTheEnd(t *testing.T) {
	for _, tt := range []struct {
		isolation int8
		offset    int64
		want      int64
	}{{0, 199, 199}, {0, 200, -1}, {1, 169, 169}, {1, 170, -1}, {0, -1, -1}} {
		answer := kmsg.ListOffsetsResponseTopicPartition{ErrorCode: 6}
		open := map[cluster.Partition]timed{{Topic: "t"}: {answer: &answer, state: lead.State{HighWatermark: 200, LastStable: 170}}}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsResponseTopicPartition{{Offset: tt.offset, Timestamp: 5, LeaderEpoch: 2}}}}
		takeTimes(resp, tt.isolation, open)
		if answer.Offset != tt.want || answer.ErrorCode != 0 || tt.want < 0 && answer.Timestamp != -1 {
			t.Errorf("isolation %d, offset %d: %+v", tt.isolation, tt.offset, answer)
		}
	}
}
