package broker

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
)

const ledEpoch = 7

func idOf(topic string) (id cluster.TopicID) {
	copy(id[:], topic)
	return id
}

// ledTest has a server lead partition 0 of a topic with epoch 7: epoch 3 from offset
// 100 on, epoch 7 from 150 on; brokers 1 and 2 have it up to 200, 3 up to 180. ended
// false leaves it gathering.
func ledTest(t *testing.T, s *Server, topic string, ended bool) *lead.Partition {
	t.Helper()
	p := lead.New(lead.Config{
		Topic: idOf(topic), Partition: cluster.Partition{Topic: topic}, Epoch: ledEpoch, Quorum: 2, Followers: []int32{1, 2, 3},
		History: []lead.EpochStart{{Epoch: 3, Start: 100}, {Epoch: ledEpoch, Start: 150}}, LogStart: 100, Idle: time.Hour,
	})
	p.Live([]int32{1, 2, 3})
	if ended {
		for range 2 { // the first time the ends of the others are not known
			for id, end := range map[int32]int64{1: 200, 2: 200, 3: 180} {
				p.Fetch(lead.Fetch{Replica: id, CurrentEpoch: ledEpoch, Offset: end, LastEpoch: ledEpoch, LogStart: 100, Now: time.Now()}).Release()
			}
		}
		if s := p.State(); s.Phase != lead.Leading || s.HighWatermark != 200 {
			t.Fatalf("not leading: %+v", s)
		}
	}
	s.led.add(p)
	return p
}

// do sends a request as a client of the server does, and gives the answer.
func do(t *testing.T, conn net.Conn, version int16, req kmsg.Request) kmsg.Response {
	t.Helper()
	req.SetVersion(version)
	got := exchange(t, conn, wrap(header{key: req.Key(), correlation: 77, client: "c"}, req))
	resp := req.ResponseKind()
	if err := readAnswerBody(got, version, resp); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestConsumed(t *testing.T) {
	leading := lead.State{
		Phase: lead.Leading, Epoch: 7, LogStart: 100, LogEnd: 200, HighWatermark: 200,
		Followers: []lead.Follower{{Replica: 1, Known: true, LogStart: 120}, {Replica: 2, Known: true, LogStart: 110}},
	}
	cut := leading
	cut.Cut = true
	gathering := lead.State{Phase: lead.Gathering, Epoch: 7}
	tests := []struct {
		name   string
		code   int16
		epoch  int32
		offset int64
		state  lead.State
		want   int16
		away   bool
	}{
		{"no replica there", 6, 7, 150, leading, 0, true},
		{"no epoch", 6, -1, 150, leading, 0, true},
		{"a broken disk", 56, 7, 150, leading, 0, true},
		{"older epoch", 6, 6, 150, leading, 74, false},
		{"newer epoch", 6, 8, 150, leading, 75, false},
		{"a replica that lags", 1, 7, 190, leading, 0, false},
		{"at the end", 1, 7, 200, leading, 0, false},
		{"behind the end", 1, 7, 201, leading, 1, false},
		{"behind the end, in an older epoch", 1, 6, 201, leading, 74, false},
		{"behind the end, in a newer epoch", 1, 8, 201, leading, 75, false},
		{"cut, the epoch not raised yet", 1, 7, 201, cut, 0, false},
		{"cut, before the start", 1, 7, 99, cut, 1, false},
		{"before the start", 1, 7, 99, leading, 1, false},
		{"gone from all replicas", 1, 7, 105, leading, 1, false},
		{"gone from one replica", 1, 7, 115, leading, 0, false},
		{"nothing is known yet", 1, 7, 5000, gathering, 0, false},
		{"gathering", 6, 7, 150, gathering, 0, true},
		{"not allowed", 29, 7, 150, leading, 29, false},
		{"fenced over there", 74, 6, 150, leading, 74, false},
	}
	for _, tt := range tests {
		if got, away := consumed(tt.code, tt.epoch, tt.offset, tt.state); got != tt.want || away != tt.away {
			t.Errorf("%s: %d %v, want %d %v", tt.name, got, away, tt.want, tt.away)
		}
	}
}

func TestHolders(t *testing.T) {
	s := newServer(ServerConfig{}, nil, nil, nil)
	p := ledTest(t, s, "t", true)
	for offset, want := range map[int64][]int32{99: {}, 100: {1, 2, 3}, 180: {1, 2, 3}, 181: {1, 2}, 200: {1, 2}, 201: {}} {
		got := holders(p.State(), offset)
		if len(got) > 1 {
			slices.Sort(got[:2]) // equally long
		}
		if !slices.Equal(got, want) {
			t.Errorf("offset %d: %v, want %v", offset, got, want)
		}
	}
	p.Live([]int32{2, 3})
	if got := holders(p.State(), 150); !slices.Equal(got, []int32{2, 3}) {
		t.Errorf("without broker 1: %v", got)
	}
}

// TestWritesAreRefused: what a real broker says stands, but for what it does not lead
// because we do.
func TestWritesAreRefused(t *testing.T) {
	codes := map[string]int16{"mirrored": 6, "guarded": 29, "elsewhere": 6, "secret": 29, "theirs": 0, "unknown": 3}
	for _, version := range []int16{3, 7, 8, 9, 10, 13} {
		r := startReal(t)
		r.answer = func(req kmsg.Request) kmsg.Response {
			resp := kmsg.NewPtrProduceResponse()
			for _, asked := range req.(*kmsg.ProduceRequest).Topics {
				topic := kmsg.NewProduceResponseTopic()
				topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
				p := kmsg.NewProduceResponseTopicPartition()
				p.ErrorCode, p.BaseOffset = codes[asked.Topic], 5
				for name, code := range codes {
					if idOf(name) == asked.TopicID {
						p.ErrorCode = code
					}
				}
				topic.Partitions = append(topic.Partitions, p)
				resp.Topics = append(resp.Topics, topic)
			}
			return resp
		}
		s, addr := serveTest(t, r, ServerConfig{})
		ledTest(t, s, "mirrored", true)
		ledTest(t, s, "guarded", true)
		req := kmsg.NewPtrProduceRequest()
		req.Acks = -1
		for name := range codes {
			topic := kmsg.NewProduceRequestTopic()
			if topic.Topic = name; version >= 13 {
				topic.TopicID = idOf(name)
			}
			p := kmsg.NewProduceRequestTopicPartition()
			p.Records = []byte("not looked at")
			topic.Partitions = append(topic.Partitions, p)
			req.Topics = append(req.Topics, topic)
		}
		conn := dialTest(t, addr)
		resp := do(t, conn, version, req).(*kmsg.ProduceResponse)
		if len(resp.Topics) != len(codes) {
			t.Errorf("version %d: %d topics", version, len(resp.Topics))
		}
		for n, topic := range resp.Topics {
			p, name := topic.Partitions[0], req.Topics[n].Topic
			want := codes[name]
			if name == "mirrored" {
				want = 44
				if version >= 8 && (p.ErrorMessage == nil || *p.ErrorMessage != "topic mirrored is a read-only mirror of another cluster until failover") {
					t.Errorf("version %d: the message is %v", version, p.ErrorMessage)
				}
			}
			if p.ErrorCode != want {
				t.Errorf("version %d, %s: error %d, want %d", version, name, p.ErrorCode, want)
			}
		}
	}
}

// TestSilentWrites: nobody waits for an answer, so that the connection has to tell.
func TestSilentWrites(t *testing.T) {
	r := startReal(t)
	s, addr := serveTest(t, r, ServerConfig{})
	ledTest(t, s, "mirrored", true)
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "theirs"
	topic.Partitions = append(topic.Partitions, kmsg.NewProduceRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	conn := dialTest(t, addr)
	send := func() []byte {
		b := wrap(header{correlation: 1, client: "c"}, req)
		if err := writeFrame(conn, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	send()
	exchange(t, conn, frameOf(3, 1, 6)) // he is still there
	req.Topics[0].Topic = "mirrored"
	sent := send()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for a write with acks=0", n)
	}
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if diff := cmp.Diff(sent, r.last()); diff != "" {
			return errors.New("the real broker did not get it as it came: " + diff)
		}
		return nil
	})
}

func TestRecordsAreNotDeleted(t *testing.T) {
	for version := range int16(3) {
		r := startReal(t)
		r.answer = func(kmsg.Request) kmsg.Response {
			resp := kmsg.NewPtrDeleteRecordsResponse()
			for name, code := range map[string]int16{"mirrored": 6, "elsewhere": 6, "theirs": 0} {
				topic := kmsg.NewDeleteRecordsResponseTopic()
				topic.Topic = name
				topic.Partitions = []kmsg.DeleteRecordsResponseTopicPartition{{ErrorCode: code, LowWatermark: 9}}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp
		}
		s, addr := serveTest(t, r, ServerConfig{})
		ledTest(t, s, "mirrored", true)
		got := make(map[string]int16)
		for _, topic := range do(t, dialTest(t, addr), version, kmsg.NewPtrDeleteRecordsRequest()).(*kmsg.DeleteRecordsResponse).Topics {
			got[topic.Topic] = topic.Partitions[0].ErrorCode
		}
		if diff := cmp.Diff(map[string]int16{"mirrored": 44, "elsewhere": 6, "theirs": 0}, got); diff != "" {
			t.Errorf("version %d: %s", version, diff)
		}
	}
}

// TestTransactionsEnd: a coordinator is not held up by a partition in which it has
// nothing to end.
func TestTransactionsEnd(t *testing.T) {
	codes := map[string]int16{"mirrored": 6, "mirrored elsewhere": 3, "guarded": 31, "other": 6, "theirs": 0}
	for version := int16(1); version <= 2; version++ {
		r := startReal(t)
		r.answer = func(kmsg.Request) kmsg.Response {
			resp := kmsg.NewPtrWriteTxnMarkersResponse()
			marker := kmsg.NewWriteTxnMarkersResponseMarker()
			marker.ProducerID = 5
			for name, code := range codes {
				topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
				topic.Topic = name
				topic.Partitions = []kmsg.WriteTxnMarkersResponseMarkerTopicPartition{{ErrorCode: code}}
				marker.Topics = append(marker.Topics, topic)
			}
			resp.Markers = append(resp.Markers, marker)
			return resp
		}
		s, addr := serveTest(t, r, ServerConfig{})
		for _, name := range []string{"mirrored", "mirrored elsewhere", "guarded"} {
			ledTest(t, s, name, true)
		}
		got := make(map[string]int16)
		for _, topic := range do(t, dialTest(t, addr), version, kmsg.NewPtrWriteTxnMarkersRequest()).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics {
			got[topic.Topic] = topic.Partitions[0].ErrorCode
		}
		want := map[string]int16{"mirrored": 0, "mirrored elsewhere": 0, "guarded": 31, "other": 6, "theirs": 0}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %d: %s", version, diff)
		}
	}
}

// TestVersionsAreCapped: of what we have to understand no version is offered that we
// do not know; of the rest, all.
func TestVersionsAreCapped(t *testing.T) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 0, MaxVersion: 99}, {ApiKey: 1, MaxVersion: 12}, {ApiKey: 3, MaxVersion: 99}}
	if !capVersions(resp) || resp.ApiKeys[0].MaxVersion != kmsg.NewPtrProduceRequest().MaxVersion() || resp.ApiKeys[1].MaxVersion != 12 || resp.ApiKeys[2].MaxVersion != 99 {
		t.Errorf("%+v", resp.ApiKeys)
	}
	if capVersions(resp) {
		t.Error("capped again")
	}
}
