package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listening calls before, once, as soon as a request of some kind is about to be sent.
type listening struct {
	net.Conn
	key    int16
	before *atomic.Pointer[func()]
}

func (l *listening) Write(b []byte) (int, error) {
	if len(b) > 6 && int16(binary.BigEndian.Uint16(b[4:])) == l.key {
		if f := l.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return l.Conn.Write(b)
}

// A look at a log that ends with a marker, while another worker appends: between the log
// end and the producers. What the broker remembers then belongs to a later end, and a batch
// with the next sequence would land, displaced (I4).
func TestRealTornLook(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		for _, end := range []int64{8, 10} { // five markers and five records more: the sequence is the offset again
			p := realTopic(t, k, "torn", nil)
			var before atomic.Pointer[func()]
			a := open(t, k.Bootstrap())
			b := open(t, k.Bootstrap(), func(cfg *Config) {
				cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, addr)
					return &listening{conn, (&kmsg.DescribeProducersRequest{}).Key(), &before}, err
				}
			})
			beginAt(t, a, stretchOf(p))
			mustAppend(t, a, p, append(batchesAt(0, 1, 5, now()), hole(5, end)))
			beginAtEnd(t, b, p, end)
			more := func() { mustAppend(t, a, p, batchesAt(end, 1, 5, now())) }
			before.Store(&more)
			if e := endOf(t, b, stretchOf(p)); !errors.Is(e.Err, cluster.ErrFenced) {
				r := appendRun(t, b, p, batchesAt(end, 1, 5, now()))
				t.Errorf("%d markers: a torn look: %+v, and then %+v", end-5, e, r)
			}
			if before.Load() != nil {
				t.Fatal("nobody asked for producers")
			}
			mustAppend(t, a, p, append([]cluster.Batch{hole(end+5, end+7)}, batchesAt(end+7, 1, 5, now())...))
			holds(t, a, p, cluster.Span{From: 0, To: 5}, cluster.Span{From: end, To: end + 5}, cluster.Span{From: end + 7, To: end + 12})
		}
	})
}
