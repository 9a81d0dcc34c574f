package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestRealFailoverAndBack is the way there and back on real Kafka: a planned
// failback copies the delta, and one after an unplanned failover rebuilds the topic
// and saves what was lost.
func TestRealFailoverAndBack(t *testing.T) {
	from, to := kafkatest.Start(t, kafkatest.Options{}), kafkatest.Start(t, kafkatest.Options{})
	from.CreateTopic(t, "orders", 2, 1, nil)
	a, b := from.Bootstrap()[0], to.Bootstrap()[0]
	leg := func(name, source, destination string) []string {
		return []string{"run", "--name", name, "--source", source, "--destination", destination, "--topics", ".*", "--state", "kafka",
			"--truncation", "rebuild", "--salvage", filepath.Join(t.TempDir(), "salvage")}
	}
	stopAt := func(c *command, destination, name string) {
		t.Helper()
		intend(t, stateAt(t, destination, ""), name, coordinator.WantStopped)
		c.shows(t, "1 topic, 2 STOPPED")
		c.stop(t)
	}
	produce(t, a, "orders", 0, 500, "first")
	c := start(t, 0, leg("a-to-b", a, b)...)
	consume(t, b, "orders", 0, 500)
	stopAt(c, b, "a-to-b")

	produce(t, b, "orders", 0, 20, "delta")
	c = start(t, 0, leg("b-to-a", b, a)...)
	consume(t, a, "orders", 0, 520)
	c.shows(t, "1 topic, 2 MIRRORING")
	intend(t, stateAt(t, a, ""), "b-to-a", coordinator.WantStopped)
	c.shows(t, "1 topic, 2 STOPPED")
	if n := copied(t, c.stop(t)); n != "22 records" { // one in each partition is that of the stop
		t.Errorf("%s copied back, want the delta of 22", n)
	}

	produce(t, b, "orders", 0, 3, "lost") // which no mirror has taken to a
	produce(t, a, "orders", 0, 4, "kept")
	intend(t, stateAt(t, b, ""), "a-to-b", coordinator.WantMirroring)
	args := leg("a-to-b", a, b)
	c = start(t, 0, args...)
	c.until(t, "rebuilt", func() bool { return strings.Contains(c.out.String(), "1 topic, 2 MIRRORING | ") })
	consume(t, b, "orders", 0, 524)
	c.stop(t)
	saved, err := filepath.Glob(filepath.Join(args[len(args)-1], "a-to-b", "orders-0", "*.log"))
	if err != nil || len(saved) != 1 {
		t.Fatalf("%v: saved %q; stderr:\n%s", err, saved, c.err.String())
	}
	if text, err := os.ReadFile(saved[0]); err != nil || !strings.Contains(string(text), "lost-2") {
		t.Errorf("%v: %s holds %q", err, saved[0], text)
	}
	equalTopics(t, a, b)
}
