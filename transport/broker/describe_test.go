package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/wire"
)

// TestProducersAreDescribed: where the real broker of a connection has no replica of what we
// lead another one is asked; of what we do not lead its word stands.
func TestProducersAreDescribed(t *testing.T) {
	of := func(id int64, codes map[string]int16) func(kmsg.Request) kmsg.Response {
		return func(req kmsg.Request) kmsg.Response {
			resp := kmsg.NewPtrDescribeProducersResponse()
			for _, asked := range req.(*kmsg.DescribeProducersRequest).Topics {
				topic := kmsg.NewDescribeProducersResponseTopic()
				topic.Topic = asked.Topic
				for _, n := range asked.Partitions {
					p := kmsg.NewDescribeProducersResponseTopicPartition()
					p.Partition, p.ErrorCode = n, codes[asked.Topic]
					if p.ErrorCode == 0 {
						one := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
						one.ProducerID = id
						p.ActiveProducers = append(p.ActiveProducers, one)
					}
					topic.Partitions = append(topic.Partitions, p)
				}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp
		}
	}
	follower, r := startReal(t), startReal(t)
	var asked atomic.Int32
	answers := of(2, nil)
	follower.answer = func(req kmsg.Request) kmsg.Response {
		if asked.Add(1); len(req.(*kmsg.DescribeProducersRequest).Topics) != 1 {
			t.Errorf("a follower is asked for %+v", req)
		}
		return answers(req)
	}
	r.answer = of(1, map[string]int16{"far": 6, "other": 6, "secret": 29})
	s, addr := serveTest(t, r, ServerConfig{})
	var away atomic.Bool
	s.follower = func(ctx context.Context, _ int32) (*wire.Conn, error) {
		if away.Load() {
			return nil, errors.New("away")
		}
		host, port, _ := net.SplitHostPort(follower.addr)
		var n int32
		fmt.Sscan(port, &n)
		return wire.Dial(ctx, wire.Addr{Host: host, Port: n}, nil)
	}
	for _, topic := range []string{"near", "far", "secret"} {
		ledTest(t, s, topic, true)
	}
	ask := func() map[string]string {
		req := kmsg.NewPtrDescribeProducersRequest()
		for _, name := range []string{"near", "far", "other", "secret"} {
			topic := kmsg.NewDescribeProducersRequestTopic()
			topic.Topic, topic.Partitions = name, []int32{0}
			req.Topics = append(req.Topics, topic)
		}
		told := make(map[string]string)
		for _, topic := range do(t, dialTest(t, addr), 0, req).(*kmsg.DescribeProducersResponse).Topics {
			p := topic.Partitions[0]
			told[topic.Topic] = fmt.Sprint("error ", p.ErrorCode)
			for _, one := range p.ActiveProducers {
				told[topic.Topic] += fmt.Sprint(", producer ", one.ProducerID)
			}
		}
		return told
	}
	want := map[string]string{"near": "error 0, producer 1", "far": "error 0, producer 2", "other": "error 6", "secret": "error 29"}
	if diff := cmp.Diff(want, ask()); diff != "" || asked.Load() != 1 {
		t.Errorf("a follower was asked %d times; %s", asked.Load(), diff)
	}
	away.Store(true)
	want["far"] = "error 6"
	if diff := cmp.Diff(want, ask()); diff != "" {
		t.Errorf("no follower answers: %s", diff)
	}
}

// TestShareGroupsWait: a share group that is refused what we lead is not answered at once,
// or it would come again at once.
func TestShareGroupsWait(t *testing.T) {
	type part struct {
		topic   string
		code    int16
		records string
	}
	answer := func(parts ...part) *kmsg.ShareFetchResponse {
		resp := kmsg.NewPtrShareFetchResponse()
		for _, one := range parts {
			topic := kmsg.NewShareFetchResponseTopic()
			topic.TopicID = idOf(one.topic)
			p := kmsg.NewShareFetchResponseTopicPartition()
			p.ErrorCode, p.Records = one.code, []byte(one.records)
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
		}
		return resp
	}
	r := startReal(t)
	refusal := answer(part{"mirrored", 6, ""})
	r.answer = func(kmsg.Request) kmsg.Response { return refusal }
	s, addr := serveTest(t, r, ServerConfig{})
	ledTest(t, s, "mirrored", true)
	for name, c := range map[string]struct {
		resp *kmsg.ShareFetchResponse
		want bool
	}{
		"what we lead":            {refusal, true},
		"and what others lead":    {answer(part{"other", 6, ""}, part{"mirrored", 6, ""}), true},
		"with records of others":  {answer(part{"mirrored", 6, ""}, part{"other", 0, "some"}), false},
		"what others lead":        {answer(part{"other", 6, ""}), false},
		"who may not":             {answer(part{"mirrored", 29, ""}), false},
		"a session that is empty": {answer(), false},
	} {
		if got := s.led.shared(c.resp); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for version := int16(1); version <= 2; version++ {
		began := time.Now()
		got := do(t, dialTest(t, addr), version, kmsg.NewPtrShareFetchRequest()).(*kmsg.ShareFetchResponse)
		if took := time.Since(began); took < shareWait || got.Topics[0].Partitions[0].ErrorCode != 6 {
			t.Errorf("version %d: %+v after %v", version, got.Topics, took)
		}
	}
}
