package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	segplain "github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/clustermirror/mirror/cluster"
)

// TestRealConsumersSecure: passwords and an authorizer, and we lead: who may read
// reads, who may not gets nothing, and who may not even write is told that, not
// that it is a mirror.
func TestRealConsumersSecure(t *testing.T) {
	t.Parallel()
	k := locked(t)
	admin := k.Client(t)
	allow(t, admin, "mirror", "", kmsg.ACLOperationDescribe, kmsg.ACLOperationAlter, kmsg.ACLOperationClusterAction)
	for _, topic := range []string{"mirrored", "mirrored-too"} {
		allow(t, admin, "reader", topic, kmsg.ACLOperationDescribe)
		allow(t, admin, "writer", topic, kmsg.ACLOperationDescribe)
	}
	allow(t, admin, "reader", "mirrored", kmsg.ACLOperationRead)
	allow(t, admin, "writer", "mirrored", kmsg.ACLOperationWrite)
	cfg := Config{
		IDs: IDs{First: 100, Last: 100}, Identities: new(MemoryIdentities), SASL: segplain.Mechanism{Username: "mirror", Password: "m"},
		Ours: func(topic string, _ cluster.TopicID, _ int32) bool { return strings.HasPrefix(topic, "mirrored") },
	}
	us := join(t, k, cfg)
	if err := us.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"mirrored", "mirrored-too"} {
		appendTo(t, leadTopic(t, us, admin, topic, 1), 0, 50)
	}
	as := func(user, password string, topic string) *kgo.Client {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(k.Addr(1)), kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}),
			kgo.KeepRetryableFetchErrors(), kgo.DisableIdempotentWrite(), kgo.FetchMaxWait(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	reader := as("reader", "r", "mirrored")
	for next := int64(0); next < 50; {
		got := reader.PollFetches(within(t, time.Minute))
		if err := got.Err(); err != nil {
			t.Fatal("a reader: ", err)
		}
		got.EachRecord(func(r *kgo.Record) {
			if r.Offset != next || string(r.Value) != fmt.Sprint("value ", next) {
				t.Errorf("offset %d holds %q where %d is next", r.Offset, r.Value, next)
			}
			next++
		})
	}
	for user, topic := range map[string]string{"reader": "mirrored-too", "writer": "mirrored"} {
		got := as(user, user[:1], topic).PollFetches(within(t, time.Minute))
		if err := got.Err(); !errors.Is(err, kerr.TopicAuthorizationFailed) || got.NumRecords() > 0 {
			t.Errorf("%s reads %s: %d records, %v", user, topic, got.NumRecords(), err)
		}
	}
	for user, want := range map[string]error{"writer": kerr.PolicyViolation, "reader": kerr.TopicAuthorizationFailed} {
		err := as(user, user[:1], "mirrored").ProduceSync(within(t, time.Minute), &kgo.Record{Topic: "mirrored", Value: []byte("x")}).FirstErr()
		if !errors.Is(err, want) {
			t.Errorf("%s writes: %v, want %v", user, err, want)
		}
	}
}
