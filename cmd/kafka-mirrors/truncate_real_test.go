package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestRealTruncate says what would go, cuts it and keeps it.
func TestRealTruncate(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{Nodes: 3})
	k.CreateTopic(t, "orders", 1, 3, nil)
	b := k.Bootstrap()[0]
	produce(t, b, "orders", 0, 100, "kept")
	produce(t, b, "orders", 0, 40, "lost")
	dir := t.TempDir()
	args := []string{"truncate", "--destination", b, "--topic", "orders", "--partition", "0", "--offset", "100",
		"--join", "100-102", "--join-state", filepath.Join(dir, "state"), "--join-bind", "127.0.0.1", "--salvage", filepath.Join(dir, "salvage"),
		"--join-listener", fmt.Sprint("INTERNAL=PLAINTEXT://127.0.0.1:", freePort(t)), "--join-listener", fmt.Sprint("CLIENT=PLAINTEXT://127.0.0.1:", freePort(t))}

	code, stdout, stderr := try(t, append(args, "--dry-run")...)
	for _, want := range []string{"log [0,140)", "in sync 1,2,3", "to go: offsets [100,140), 40 in"} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("a dry run, exit code %d, %q is not in:\n%s%s", code, want, stdout, stderr)
		}
	}
	consume(t, b, "orders", 0, 140)
	if saved, _ := filepath.Glob(filepath.Join(dir, "salvage", "*")); len(saved) > 0 {
		t.Errorf("a dry run saves %v", saved)
	}

	code, stdout, stderr = try(t, args...)
	if code != exitOK || !strings.Contains(stdout, "gone: offsets [100,140)") {
		t.Fatalf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	if end := k.Ends(t.Context(), t, "orders")[0]; end != 100 {
		t.Errorf("the log ends at %d", end)
	}
	text, err := os.ReadFile(filepath.Join(dir, "salvage", "truncate", "orders-0", "00000000000000000100.log"))
	if err != nil || !strings.Contains(string(text), "lost-39") || strings.Contains(string(text), "kept-99") {
		t.Errorf("%v: saved %d bytes", err, len(text))
	}
	produce(t, b, "orders", 0, 1, "new")
	if all := consume(t, b, "orders", 0, 101); string(all[100].Value) != "new-0" {
		t.Errorf("at offset 100 is %q", all[100].Value)
	}

	code, _, stderr = try(t, "truncate", "--destination", b, "--topic", "__consumer_offsets", "--partition", "0", "--offset", "0",
		"--join", "100-102", "--join-state", filepath.Join(dir, "state"), "--join-listener", fmt.Sprint("INTERNAL=PLAINTEXT://127.0.0.1:", freePort(t)))
	if code != exitFailed || !strings.Contains(stderr, "__consumer_offsets-0") {
		t.Errorf("a topic of Kafka's own, exit code %d:\n%s", code, stderr)
	}
	failbackByCut(t, k, dir)
}

// failbackByCut mirrors back to where records were lost: they are cut off and kept, the topic
// stays, and only what the other side has written is copied.
func failbackByCut(t *testing.T, k *kafkatest.Cluster, dir string) {
	t.Helper()
	k.CreateTopic(t, "home", 1, 3, nil)
	a, b := k.Bootstrap()[0], newCluster(t, "b")
	part(t, a, b, "home")
	salvage := filepath.Join(dir, "salvage")
	c := start(t, 0, "run", "--name", "b-to-a", "--source", b, "--destination", a, "--topics", "home", "--state", "kafka", "--salvage", salvage,
		"--truncation", "join", "--join", "100-102", "--join-state", filepath.Join(dir, "state"), "--join-bind", "127.0.0.1",
		"--join-listener", fmt.Sprint("INTERNAL=PLAINTEXT://127.0.0.1:", freePort(t)), "--join-listener", fmt.Sprint("CLIENT=PLAINTEXT://127.0.0.1:", freePort(t)))
	c.until(t, "cut and copied", func() bool { return strings.Contains(c.out.String(), "1 topic, 1 MIRRORING | 3 truncated\n") })
	got, want := consume(t, a, "home", 0, 14), consume(t, b, "home", 0, 14)
	for i := range want {
		if got[i].Offset != want[i].Offset || string(got[i].Value) != string(want[i].Value) {
			t.Fatalf("record %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if n := copied(t, c.stop(t)); n != "5 records" {
		t.Errorf("%s copied, want the 4 of the other side, and its fence", n)
	}
	if !strings.Contains(c.err.String(), "home-0 being cut: given back") {
		t.Errorf("stderr does not say how far the cut is:\n%s", c.err.String())
	}
	text, err := os.ReadFile(filepath.Join(salvage, "b-to-a", "home-0", "00000000000000000010.log"))
	if err != nil || !strings.Contains(string(text), "lost-2") {
		t.Errorf("%v: saved %d bytes", err, len(text))
	}
}
