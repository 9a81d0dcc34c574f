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
}
