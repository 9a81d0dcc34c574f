package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestRealTwin: a request whose answer was lost has landed. What is sent for that place
// then is a duplicate to the broker, which compares sequences alone: it is ours when it is
// the same batch, and another log's when it is not (I1, I4).
func TestRealTwin(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "twin", nil)
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(p))
		stamp := now()
		mustAppend(t, c, p, batchesAt(0, 1, 10, stamp))
		again := func(b []cluster.Batch) error {
			t.Helper()
			beginAtEnd(t, c, p, 10)
			l := c.lane(p)
			l.mu.Lock()
			l.tail, l.end, l.unknownTo = 0, 0, 10 // as if the log end had been read before it landed
			l.mu.Unlock()
			return appendRun(t, c, p, b).Err
		}
		if err := again(batchesAt(0, 1, 10, stamp)); err != nil {
			t.Errorf("the same batch: %v", err)
		}
		other := batchesAt(0, 1, 10, stamp)
		var records []batch.Record
		for i := range 10 {
			records = append(records, batch.Record{Offset: int64(i), Timestamp: stamp, Value: fmt.Append(nil, "another record ", i)})
		}
		other[0].Bytes = batch.Encode(batch.Spec{LeaderEpoch: 7, Records: records})
		if err := again(other); !errors.Is(err, cluster.ErrDiverged) {
			t.Errorf("another batch with the same sequences and time: %v", err)
		}
	})
}
