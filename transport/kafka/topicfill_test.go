package kafka

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/topics"
)

// setPolicy changes a topic's cleanup.policy as the sync of settings does.
func setPolicy(t *testing.T, c *Cluster, policy string) {
	t.Helper()
	ch := topics.Changes{Topic: "t", Changes: []topics.Change{{Name: "cleanup.policy", Value: &policy}}}
	if err := c.AlterTopics(t.Context(), []topics.Changes{ch})[0]; err != nil {
		t.Fatal(err)
	}
}

// filledWith are the keys of what fills the log of p0 from an offset on.
func filledWith(t *testing.T, c *Cluster, from int64) map[string]int {
	t.Helper()
	keys := map[string]int{}
	w := batch.Walk(readAll(t, c, p0))
	for w.Next() {
		if w.Header().Base() < from || w.Header().Control() {
			continue
		}
		if err := batch.Decode(w.Header(), func(r batch.Record) error { keys[string(r.Key)]++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

// TestPolicyChangesMeanwhile: settings are kept in step while a topic is filled. What fills it is made for those
// that hold: compacted topics take no record without a key, and keep what could be deleted elsewhere.
func TestPolicyChangesMeanwhile(t *testing.T) {
	gone := func(from, to int64) []cluster.Batch { return []cluster.Batch{{Base: from, Next: to, Gone: true}} }
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs(), filledBy(GapPhantoms))
	beginAt(t, c, stretchOf(p0))
	var from int64
	for _, step := range []struct {
		policy string
		run    func(from, to int64) []cluster.Batch
		key    string
	}{
		{"delete", func(from, to int64) []cluster.Batch { return []cluster.Batch{hole(from, to)} }, ""},
		{"compact", func(from, to int64) []cluster.Batch { return []cluster.Batch{hole(from, to)} }, phantomKey},
		{"compact,delete", gone, fillerKey},
		{"compact", gone, phantomKey},
		{"delete", gone, fillerKey},
	} {
		setPolicy(t, c, step.policy)
		mustAppend(t, c, p0, step.run(from, from+10))
		if got := filledWith(t, c, from); len(got) != 1 || got[step.key] != 10 {
			t.Errorf("%s: filled with %v, want 10 of %q", step.policy, got, step.key)
		}
		from += 10
	}
}

// TestPolicyChangedByOthers: who learns of it by the broker's refusal goes on when it begins again.
func TestPolicyChangedByOthers(t *testing.T) {
	f := fake(t, 1, "t", 1)
	c := open(t, f.ListenAddrs(), filledBy(GapPhantoms))
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, []cluster.Batch{hole(0, 5)})
	setPolicy(t, open(t, f.ListenAddrs()), "compact")
	refuseKeyless(f)
	if r := appendRun(t, c, p0, []cluster.Batch{hole(5, 10)}); !errors.Is(r.Err, cluster.ErrUnavailable) || !cluster.Retriable(r.Err) || r.Next != 5 {
		t.Fatalf("%+v", r)
	}
	beginAt(t, c, stretchOf(p0))
	mustAppend(t, c, p0, []cluster.Batch{hole(5, 10)})
	if got := filledWith(t, c, 5); got[phantomKey] != 5 {
		t.Errorf("filled with %v", got)
	}
	// A record of the application without a key is refused for good.
	b := batch.Encode(batch.Spec{Base: 11, Records: []batch.Record{{Offset: 11, Timestamp: now(), Value: []byte("of an application")}}})
	if r := appendRun(t, c, p0, []cluster.Batch{hole(10, 11), {Base: 11, Next: 12, MaxTimestamp: now(), Bytes: b}}); !errors.Is(r.Err, cluster.ErrRefused) || r.Next != 11 {
		t.Errorf("%+v", r)
	}
}

// refuseKeyless has the broker take no record without a key, as for a compacted topic.
func refuseKeyless(f *kfake.Cluster) {
	f.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		keyless := false
		_ = batch.Decode(batch.Header(req.Topics[0].Partitions[0].Records), func(r batch.Record) error {
			keyless = keyless || r.Key == nil
			return nil
		})
		if !keyless {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, int16(invalidRecord), -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}
