package broker

import (
	"context"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzConsumer: whatever stands in a fetch, there is no panic, and what is kept of it
// is within the memory and given back.
func FuzzConsumer(f *testing.F) {
	for version := int16(fetchMagic2); version <= 18; version++ {
		req := fetches(version, map[string]int64{"a": 1, "b": 2})
		f.Add(version, wrap(header{key: 1, client: "c"}, req)[11:])
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 0 || version > 18 {
			return
		}
		c := &client{server: newServer(ServerConfig{}, nil, nil, nil)}
		memory := newBudget(20 * wantedCost)
		for range 2 { // the second time into what the first has left
			req := kmsg.NewPtrFetchRequest()
			decoded, err := c.decode(t.Context(), header{key: 1, version: version, body: body}, req)
			if err != nil {
				return
			}
			_, err = c.remembered().take(req, memory)
			decoded()
			if len(c.consumer.turn()) != len(c.consumer.index) || err == nil && memory.left != memory.size-int64(len(c.consumer.wanted))*wantedCost {
				t.Errorf("%d partitions, %d in the index, %d bytes left", len(c.consumer.wanted), len(c.consumer.index), memory.left)
			}
			if err != nil {
				break
			}
		}
		c.consumer.hangUp(memory)
		if memory.left != memory.size {
			t.Errorf("%d bytes are lost", memory.size-memory.left)
		}
	})
}

// TestNoSenseOfARealBroker: an answer that is none ends the connection, whatever was
// asked, and memory is given back.
func TestNoSenseOfARealBroker(t *testing.T) {
	for key := range looked {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for {
				req, err := readRequest(context.Background(), far, 1<<20, newBudget(1<<20))
				if err != nil || writeFrame(far, append(req.bytes[4:8:8], 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff)) != nil {
					return
				}
			}
		}()
		s, addr := serveTest(t, startReal(t), ServerConfig{})
		s.dial = func(context.Context, string) (net.Conn, error) { return near, nil }
		ledTest(t, s, "t", true)
		req := key.Request()
		req.SetVersion(req.MaxVersion())
		if p, ok := req.(*kmsg.ProduceRequest); ok {
			p.Acks = -1
		}
		if r, ok := req.(*kmsg.FetchRequest); ok {
			r.ReplicaID, r.SessionEpoch = -1, -1
		}
		conn := dialTest(t, addr)
		if err := writeFrame(conn, wrap(header{key: req.Key(), client: "c"}, req)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 64<<10)); err == nil {
			t.Errorf("%s: an answer was made of nothing", key.Name())
		}
	}
}
