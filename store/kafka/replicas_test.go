package kafka

import (
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFewerReplicas: a broker that takes no replicas is counted among the brokers all the
// same; the topic is made with fewer replicas then, unless their number was given.
func TestFewerReplicas(t *testing.T) {
	t.Parallel()
	f := fake(t, 3)
	var mu sync.Mutex
	var asked []int16
	f.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := r.(*kmsg.CreateTopicsRequest)
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, req.Topics[0].ReplicationFactor)
		if req.Topics[0].ReplicationFactor <= 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		topic := kmsg.NewCreateTopicsResponseTopic()
		topic.Topic, topic.ErrorCode = req.Topics[0].Topic, int16(tooManyReplicas)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	mustSave(t, openAt(t, f.ListenAddrs(), unique()), record("t", 0, 1))
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(asked, []int16{3, 2, 1}) {
		t.Errorf("asked for %v replicas", asked)
	}
}
