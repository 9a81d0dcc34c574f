package acceptance

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestJoinedUpgrade: the nodes of the destination get a newer release, one after the other, and then its
// features are upgraded, all under load. Our own processes are restarted in the middle of it, and after
// it. Nothing of it is anything but a broker's restart: at the end each replica has the source's log byte for byte,
// readers have read each record once, and nobody has written before the stop.
func TestJoinedUpgrade(t *testing.T) {
	for _, from := range sized(nil, []string{"3.9.1"}) {
		t.Run(from, func(t *testing.T) {
			dst := kafkatest.Start(t, kafkatest.Options{Version: from, Nodes: 3, Config: map[string]string{
				"default.replication.factor": "3", "broker.session.timeout.ms": "3000",
				"log.cleaner.backoff.ms": "3600000", "auto.leader.rebalance.enable": "false",
			}})
			s := stormOver(t, dst, "upgraded"+from[:1], 2)
			s.begin()
			restart := func(b blow) {
				w := s.worker(b)
				s.while(fmt.Sprintf("%s, broker %d, is restarted in order", w.joined.Name, w.id()), func() { w.restart() })
			}
			for node := range dst.Nodes() {
				s.while(fmt.Sprintf("node %d is upgraded", node+1), func() { dst.Upgrade(node+1, kafkatest.DefaultVersion) })
				if node == 0 { // nodes are of two releases
					restart(blow{other: true})
					restart(blow{})
				}
			}
			s.while("features are upgraded", func() { dst.UpgradeFeatures(timeout(t, time.Minute), t, "4.4") })
			restart(blow{other: true})
			restart(blow{})
			s.end()
		})
	}
}

// restart ends a worker in order, and starts it again.
func (w *mirroring) restart() {
	w.t.Helper()
	w.process.Signal(syscall.SIGTERM)
	if err := w.process.Wait(timeout(w.t, 30*time.Second)); err != nil {
		w.t.Error(err)
	}
	w.start()
}
