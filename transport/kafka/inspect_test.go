package kafka

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/preflight"
	"github.com/clustermirror/mirror/topics"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TestInspect: brokers that cannot be reached, what may be done with topics and groups, and
// topics that are not there.
func TestInspect(t *testing.T) {
	f := fake(t, 2, "orders", 3)
	var heartbeats []string
	f.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := r.(*kmsg.HeartbeatRequest)
		heartbeats = append(heartbeats, req.Group)
		answer := req.ResponseKind().(*kmsg.HeartbeatResponse)
		if answer.ErrorCode = 25; req.Group == "shut" {
			answer.ErrorCode = 30
		}
		return answer, nil, true
	})
	f.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if !req.IncludeTopicAuthorizedOperations {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.Topics {
			one := kmsg.NewMetadataResponseTopic()
			one.Topic, one.AuthorizedOperations = asked.Topic, int32(preflight.Set(preflight.Read, preflight.Describe))
			switch *asked.Topic {
			case "none":
				one.ErrorCode = 3
			case "shut":
				one.ErrorCode, one.AuthorizedOperations = 29, untold
			default:
				for n, replicas := range [][]int32{{1, 2}, {1}} {
					p := kmsg.NewMetadataResponseTopicPartition()
					p.Partition, p.Leader, p.Replicas = int32(n), int32(-n), replicas
					one.Partitions = append(one.Partitions, p)
				}
			}
			answer.Topics = append(answer.Topics, one)
		}
		return answer, nil, true
	})
	net := kafkatest.NewNetwork(t)
	links := net.Links(f.ListenAddrs()...)
	c := open(t, f.ListenAddrs()[:1], func(cfg *Config) { cfg.Dial, cfg.GapFill, cfg.DialTimeout = net.Dial, GapPhantoms, 2*time.Second })
	links[1].Refuse(true)
	in, err := c.Inspect(within(t, 30*time.Second), []string{"orders", "none", "shut"}, []string{"open", "shut"})
	if err != nil {
		t.Fatal(err)
	}
	if b := in.Brokers; len(b) != 2 || b[0].Err != nil || b[0].Versions[int16(kmsg.Fetch)] < 11 || b[1].Err == nil || b[1].Cause != "refused" || b[1].Address != f.ListenAddrs()[1] ||
		b[0].Leads != 1 || b[1].Leads != 0 {
		t.Errorf("brokers %+v", b)
	}
	if d := in.Topics["orders"]; !d.Exists || d.Factor != 1 || !slices.Equal(d.Leaderless, []int32{1}) || d.Err != nil {
		t.Errorf("orders: %+v", d)
	}
	if d := in.Topics["none"]; d.Exists || d.Err != nil || !in.Rights.Topics["none"].Has(preflight.Read) || in.Rights.Topics["none"].Has(preflight.Write) {
		t.Errorf("none: %+v, %v", d, in.Rights.Topics["none"])
	}
	if _, told := in.Rights.Topics["shut"]; told || in.Topics["shut"].Err == nil {
		t.Errorf("shut: %+v", in.Topics["shut"])
	}
	if g := in.Rights.Groups; !g["open"].Has(preflight.Read) || g["shut"].Has(preflight.Read) || len(heartbeats) != 2 {
		t.Errorf("groups %v, asked %v", g, heartbeats)
	}
	if in.Client == nil || in.Client.GapFill != "phantoms" || in.Client.MaxStartFill != 100_000_000 {
		t.Errorf("%+v", in.Client)
	}
}

// TestInspectOld: brokers that do not tell rights are no error.
func TestInspectOld(t *testing.T) {
	f := fake(t, 1, "orders", 1, kfake.MaxVersions(kversion.V2_1_0()))
	in, err := open(t, f.ListenAddrs()).Inspect(within(t, 30*time.Second), []string{"orders"}, nil)
	if err != nil || in.Rights.Topics != nil || in.Rights.Cluster != nil || !in.Topics["orders"].Exists {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestRehearse: what would be refused is, what would not be is not done.
func TestRehearse(t *testing.T) {
	f := fake(t, 1, "orders", 1)
	c := open(t, f.ListenAddrs())
	news := []cluster.NewTopic{{Name: "orders", Partitions: 1, ReplicationFactor: -1}, {Name: "fresh", Partitions: 2, ReplicationFactor: -1}}
	dry := 0
	f.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if r.(*kmsg.CreateTopicsRequest).ValidateOnly {
			dry++
		}
		return nil, nil, false
	})
	got := c.RehearseCreate(within(t, 30*time.Second), news)
	if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "topic orders") || got[1].Err != nil || dry != 1 {
		t.Errorf("%+v, %d requests that only ask", got, dry)
	}
	all, err := c.Topics(within(t, 30*time.Second))
	if err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	long := "99"
	if errs := c.RehearseAlter(within(t, 30*time.Second), []topics.Changes{{Topic: "orders", Changes: []topics.Change{{Name: "retention.ms", Value: &long}}}}); errs[0] != nil {
		t.Error(errs[0])
	}
	settings, err := c.TopicConfigs(within(t, 30*time.Second), []string{"orders"})
	if err != nil || slices.ContainsFunc(settings[0].Configs, func(s cluster.TopicConfig) bool { return s.Name == "retention.ms" }) {
		t.Errorf("%+v, %v", settings, err)
	}
}
