package broker

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/wire"
)

// fetches asks for partition 0 of topics, by name or by id as the version wants.
func fetches(version int16, offsets map[string]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MinBytes, req.MaxBytes, req.SessionEpoch = version, -1, 1, 1<<20, 0
	for _, name := range slices.Sorted(maps.Keys(offsets)) {
		topic := kmsg.NewFetchRequestTopic()
		if topic.Topic = name; version >= 13 {
			topic.Topic, topic.TopicID = "", idOf(name)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = offsets[name], ledEpoch, 1<<20
		topic.Partitions = append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// replicas answers fetches as a broker does that has replicas of some topics, and
// knows of all of them that it does not lead.
func replicas(req *kmsg.FetchRequest, has ...string) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	for _, asked := range req.Topics {
		name := asked.Topic
		for _, known := range []string{"near", "far", "late", "secret"} {
			if idOf(known) == asked.TopicID {
				name = known
			}
		}
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica, p.RecordBatches = -1, -1, -1, -1, []byte{}
		ask := asked.Partitions[0]
		switch {
		case name == "secret":
			p.ErrorCode = 29
		case !slices.Contains(has, name) || req.Version < fetchFromFollower:
			p.ErrorCode = 6
		case name == "late" && ask.FetchOffset > 120:
			p.ErrorCode = 1
		case ask.CurrentLeaderEpoch >= 0 && ask.CurrentLeaderEpoch != ledEpoch:
			p.ErrorCode = 74
		default:
			p.HighWatermark, p.RecordBatches = 190, fmt.Append(nil, name, " from ", ask.FetchOffset)
		}
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// told gives what an answer says of each topic.
func fetchTold(resp *kmsg.FetchResponse) map[string]string {
	out := make(map[string]string)
	for _, topic := range resp.Topics {
		name := topic.Topic
		for _, known := range []string{"near", "far", "late", "secret"} {
			if idOf(known) == topic.TopicID {
				name = known
			}
		}
		p := topic.Partitions[0]
		if p.RecordBatches == nil {
			name += " with null for records"
		}
		text := fmt.Sprintf("error %d, %q, to %d", p.ErrorCode, p.RecordBatches, p.HighWatermark)
		if p.PreferredReadReplica >= 0 && resp.Version >= fetchFromFollower {
			text += ", elsewhere"
		}
		out[name] = text
	}
	return out
}

// consumeTest is a server that leads topics near, far, late and secret, with a real
// broker that has replicas of near and late, and followers with all.
func consumeTest(t *testing.T) (*Server, net.Conn, *atomic.Int32) {
	t.Helper()
	follower := startReal(t)
	var asked atomic.Int32
	follower.answer = func(req kmsg.Request) kmsg.Response {
		if asked.Add(1); req.GetVersion() != sideVersion {
			t.Errorf("a follower is asked in version %d", req.GetVersion())
		}
		return replicas(req.(*kmsg.FetchRequest), "near", "far", "late")
	}
	r := startReal(t)
	r.answer = func(req kmsg.Request) kmsg.Response { return replicas(req.(*kmsg.FetchRequest), "near", "late") }
	s, addr := serveTest(t, r, ServerConfig{})
	s.follower = func(ctx context.Context, _ int32) (*wire.Conn, error) {
		host, port, _ := net.SplitHostPort(follower.addr)
		var n int32
		fmt.Sscan(port, &n)
		return wire.Dial(ctx, wire.Addr{Host: host, Port: n}, nil)
	}
	for _, topic := range []string{"near", "far", "late", "secret"} {
		ledTest(t, s, topic, true)
	}
	return s, dialTest(t, addr), &asked
}

// TestConsume: a client reads everything that he may through us, in every version of
// Fetch that there is, whoever has it.
func TestConsume(t *testing.T) {
	for version := int16(fetchMagic2); version <= 18; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			_, conn, asked := consumeTest(t)
			req := fetches(version, map[string]int64{"near": 150, "far": 160, "late": 170, "secret": 100})
			near, secret := `error 0, "near from 150", to 190`, `error 29, "", to -1`
			late := `error 0, "", to 200` // the real broker lags: it is empty, and no reason to begin anew
			first := do(t, conn, version, req).(*kmsg.FetchResponse)
			if diff := cmp.Diff(map[string]string{"near": near, "far": `error 0, "", to 200`, "late": late, "secret": secret}, fetchTold(first)); diff != "" {
				t.Error("first answer: ", diff)
			}
			if (first.SessionID != 0) != (version >= 7) {
				t.Errorf("session %d", first.SessionID)
			}
			if version >= 7 { // and again: nothing has changed
				req = fetches(version, nil)
				req.SessionID, req.SessionEpoch = first.SessionID, 1
			}
			second := do(t, conn, version, req).(*kmsg.FetchResponse)
			if diff := cmp.Diff(map[string]string{"near": near, "far": `error 0, "far from 160", to 190`, "late": late, "secret": secret}, fetchTold(second)); diff != "" {
				t.Error("second answer: ", diff)
			}
			if second.SessionID != first.SessionID || asked.Load() != 1 {
				t.Errorf("session %d after %d, %d questions to followers", second.SessionID, first.SessionID, asked.Load())
			}
		})
	}
}

// TestJavaIsRedirected: Kafka's own client is sent to a follower where the real
// broker has no replica.
func TestJavaIsRedirected(t *testing.T) {
	_, conn, asked := consumeTest(t)
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.ClientSoftwareName, hello.ClientSoftwareVersion = javaSoftware, "4.4.0"
	do(t, conn, 3, hello)
	for range 2 {
		got := fetchTold(do(t, conn, 12, fetches(12, map[string]int64{"near": 150, "far": 160})).(*kmsg.FetchResponse))
		if diff := cmp.Diff(map[string]string{"near": `error 0, "near from 150", to 190`, "far": `error 0, "", to 200, elsewhere`}, got); diff != "" {
			t.Error(diff)
		}
	}
	if asked.Load() != 0 {
		t.Error("a follower was asked for him as well")
	}
}

// TestRedirectedIntoTheRack: he is sent to a follower in his own rack, if one has what he reads.
func TestRedirectedIntoTheRack(t *testing.T) {
	for _, tt := range []struct {
		rack   string
		offset int64
		want   int32
	}{{"", 160, 1}, {"b", 160, 2}, {"c", 160, 3}, {"c", 190, 1}, {"elsewhere", 160, 1}, {strings.Repeat("b", maxRack+1), 160, 1}} {
		s, conn, _ := consumeTest(t)
		racks := map[int32]string{1: "a", 2: "b", 3: "c"}
		if len(tt.rack) > maxRack { // longer than what is kept of it
			racks[2] = tt.rack
		}
		s.rack = func(broker int32) string { return racks[broker] }
		hello := kmsg.NewPtrApiVersionsRequest()
		hello.ClientSoftwareName, hello.ClientSoftwareVersion = javaSoftware, "4.4.0"
		do(t, conn, 3, hello)
		req := fetches(12, map[string]int64{"far": tt.offset})
		req.Rack = tt.rack
		if got := do(t, conn, 12, req).(*kmsg.FetchResponse).Topics[0].Partitions[0].PreferredReadReplica; got != tt.want {
			t.Errorf("rack %q, offset %d: sent to %d, want %d", tt.rack, tt.offset, got, tt.want)
		}
	}
}

// TestOtherEpochs: who believes in another leader epoch is told so, as a leader does:
// where a follower is asked for him too, and where a real broker that has heard of the
// other epoch no more than he says that he is out of range.
func TestOtherEpochs(t *testing.T) {
	for epoch, code := range map[int32]int16{ledEpoch - 1: 74, ledEpoch + 1: 75} {
		want := fmt.Sprintf(`error %d, "", to -1`, code)
		_, conn, asked := consumeTest(t)
		for _, first := range []int32{epoch, ledEpoch, epoch} {
			req := fetches(12, map[string]int64{"far": 160, "late": 170})
			for i := range req.Topics {
				req.Topics[i].Partitions[0].CurrentLeaderEpoch = first
			}
			got := fetchTold(do(t, conn, 12, req).(*kmsg.FetchResponse))
			if first != ledEpoch && (got["far"] != want || got["late"] != want) {
				t.Errorf("epoch %d, %d questions to followers: %v", epoch, asked.Load(), got)
			}
		}
		if asked.Load() != 1 {
			t.Errorf("%d questions to followers", asked.Load())
		}
	}
}

// TestReplicasOfClients: who is no consumer is a real broker's affair.
func TestReplicasOfClients(t *testing.T) {
	_, conn, _ := consumeTest(t)
	req := fetches(12, map[string]int64{"far": 160})
	req.ReplicaID = 5
	if got := fetchTold(do(t, conn, 12, req).(*kmsg.FetchResponse)); got["far"] != `error 6, "", to -1` {
		t.Error(got)
	}
}

// TestWaits: without records an answer takes as long as the client wants, and no
// longer.
func TestWaits(t *testing.T) {
	s, conn, _ := consumeTest(t)
	ledTest(t, s, "gathering", false) // nobody is known to have it
	req := fetches(10, map[string]int64{"gathering": 0})
	req.MaxWaitMillis = 300
	began := time.Now()
	got := fetchTold(do(t, conn, 10, req).(*kmsg.FetchResponse))
	if took := time.Since(began); got["gathering"] != `error 0, "", to -1` || took < 250*time.Millisecond || took > 20*time.Second {
		t.Errorf("%v after %v", got, took)
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		pause(ctx, -1)
		pause(ctx, 400*time.Millisecond)
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Errorf("paused for %v", took)
		}
		pause(ctx, time.Hour)
		if took := time.Since(began); took != time.Second {
			t.Errorf("ctx ended after a second, the pause after %v", took)
		}
	})
}
