package broker

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestPassagesToABrokerThatIsOut: a client waits for the answer of a real broker that hangs.
// When the cluster puts that one out he is cut off, and is not passed on to it again.
func TestPassagesToABrokerThatIsOut(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	at := []metalog.Listener{{Name: "CLIENT", Host: "127.0.0.1", Port: uint16(hangs.Addr().(*net.TCPAddr).Port)}}
	f := startFake(t, 1, metalog.RegisterBroker{Broker: metalog.Broker{ID: 2, Epoch: 7, Listeners: at}})
	m, _ := joinFake(t, f, nil)
	conn, err := m.dialReal(t.Context(), "CLIENT")
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.dialReal(t.Context(), "CLIENT")
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if n := len(m.passages.all); n != 1 {
		t.Errorf("%d connections are kept, one is open", n)
	}
	fenced := true
	f.Append(metalog.ChangeBroker{ID: 2, Epoch: 7, Fenced: &fenced})
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("waiting for a broker that is out: %v", err)
	}
	if _, err := m.dialReal(t.Context(), "CLIENT"); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("passed on to a broker that is out: %v", err)
	}
}
