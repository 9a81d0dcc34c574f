package kafkatest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports are taken below the range from which kernels give outgoing connections
// their local port (32768 upwards on Linux): a stopped node must find its port
// still free when it comes back.
const firstPort, lastPort = 15000, 32000

// freePorts returns n distinct ports nobody listens on. Another process may
// take one before its use; starting a cluster is retried then.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	var held []net.Listener // held until all are found, so that they differ
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range 100 * n {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", localAddr(port))
		if err != nil {
			continue
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	if len(ports) == n {
		return ports, nil
	}
	return nil, fmt.Errorf("kafkatest: found %d of %d free ports", len(ports), n)
}

// FreeAddrs returns n distinct addresses of this machine that nobody listens at, from
// the range in which a process that is down for a while finds its own still free.
func FreeAddrs(t testing.TB, n int) []string {
	t.Helper()
	ports, err := freePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, n)
	for i, port := range ports {
		out[i] = localAddr(port)
	}
	return out
}
