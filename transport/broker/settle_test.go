package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/wire"
)

// TestSettled: clients of a new leader wait until it knows its log, and no longer than that
// may take.
func TestSettled(t *testing.T) {
	p := cluster.Partition{Topic: "led"}
	partition := func() *lead.Partition {
		return lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: p, Epoch: 4, Quorum: 1, Followers: []int32{1}})
	}
	heard := func(led *lead.Partition) {
		led.Fetch(lead.Fetch{Replica: 1, CurrentEpoch: 4, Offset: 0, LastEpoch: -1, MaxBytes: 1, Now: time.Now()})
	}
	for _, tt := range []struct {
		name          string
		led           bool
		soon, elected bool
		after         time.Duration // when it knows its log; 0 never
		want          time.Duration
	}{
		{"somebody else's", false, false, false, 0, 0},
		{"we may be elected, and are not", false, true, false, 0, settlingSoon},
		{"elected, and never more", false, true, true, 0, settlingFor},
		{"elected, and its log is found", false, true, true, 300 * time.Millisecond, 300 * time.Millisecond},
		{"led, and its followers say nothing", true, true, true, 0, settlingFor},
		{"led, and they do", true, true, true, 60 * time.Millisecond, 60 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(ServerConfig{}, func() Self { return Self{} }, nil, nil)
				s.coming = func(k fetchKey) (bool, bool) { return tt.soon && k.name == p.Topic, tt.elected }
				led := partition()
				if tt.led {
					s.led.add(led)
				}
				if tt.after > 0 {
					go func() {
						time.Sleep(tt.after - time.Millisecond)
						heard(led)
						s.led.add(led)
					}()
				}
				began := time.Now()
				s.settled(t.Context(), []cluster.Partition{p})
				if took := time.Since(began); took < tt.want || took > tt.want+2*comingLook {
					t.Errorf("waited for %v, want %v", took, tt.want)
				}
				s.led.add(led)
				if began = time.Now(); tt.soon {
					s.begun(t.Context(), []wanted{{fetchKey: fetchKey{topic: cluster.TopicID{1}}}}) // which we lead
				}
				s.begun(t.Context(), []wanted{{fetchKey: fetchKey{name: p.Topic, partition: 1}}})
				if took, want := time.Since(began), min(tt.want, settlingFor); tt.after == 0 && (took < want || took > want+2*comingLook) {
					t.Errorf("a fetch of what we do not lead waited for %v, want %v", took, want)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// TestClientsOfANewLeader: what a client asks of a partition that we are elected for, and do not
// lead yet, is answered when we do; a real broker's word would have it come again a second later.
func TestClientsOfANewLeader(t *testing.T) {
	offsets := kmsg.NewPtrListOffsetsRequest()
	listed := kmsg.NewListOffsetsRequestTopic()
	ends := kmsg.NewPtrOffsetForLeaderEpochRequest()
	asked := kmsg.NewOffsetForLeaderEpochRequestTopic()
	listed.Topic, asked.Topic = "near", "near"
	latest, last := kmsg.NewListOffsetsRequestTopicPartition(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	latest.Timestamp, latest.CurrentLeaderEpoch, last.CurrentLeaderEpoch, last.LeaderEpoch = -1, ledEpoch, ledEpoch, ledEpoch
	listed.Partitions, asked.Partitions = append(listed.Partitions, latest), append(asked.Partitions, last)
	offsets.Topics, ends.Topics = append(offsets.Topics, listed), append(ends.Topics, asked)
	for _, tt := range []struct {
		req     kmsg.Request
		version int16
		refuse  func() kmsg.Response // as a real broker that does not lead it
		told    func(kmsg.Response) (code int16, of int64)
		want    int64
	}{
		{offsets, 5, func() kmsg.Response { return times(offsets, "", 0) }, func(r kmsg.Response) (int16, int64) {
			p := r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			return p.ErrorCode, p.Offset
		}, 200},
		{ends, 3, func() kmsg.Response {
			resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = "near"
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.ErrorCode = 6
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
			return resp
		}, func(r kmsg.Response) (int16, int64) {
			p := r.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			return p.ErrorCode, p.EndOffset
		}, 200},
		{fetches(12, map[string]int64{"near": 200}), 12, func() kmsg.Response { return replicas(fetches(12, map[string]int64{"near": 200})) }, func(r kmsg.Response) (int16, int64) {
			p := r.(*kmsg.FetchResponse).Topics[0].Partitions[0]
			return p.ErrorCode, p.HighWatermark
		}, 200},
	} {
		t.Run(kmsg.NameForKey(tt.req.Key()), func(t *testing.T) {
			real := startReal(t)
			real.answer = func(kmsg.Request) kmsg.Response { return tt.refuse() }
			s, addr := serveTest(t, real, ServerConfig{})
			s.follower = func(context.Context, int32) (*wire.Conn, error) { return nil, errNothing }
			looked := 0
			s.coming = func(fetchKey) (soon, elected bool) {
				if looked++; looked == 3 {
					ledTest(t, s, "near", true)
				}
				return false, true
			}
			if code, of := tt.told(do(t, dialTest(t, addr), tt.version, tt.req)); code != 0 || of != tt.want {
				t.Errorf("error %d, %d, want %d", code, of, tt.want)
			}
		})
	}
}
