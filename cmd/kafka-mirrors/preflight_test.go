package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/preflight"
)

// TestPreflightCommand: what is ready, what blocks, and what is wrong with the command line have an exit
// code each; nothing is created.
func TestPreflightCommand(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(2, "orders", "payments")), newCluster(t, "b", kfake.SeedTopics(3, "payments"))
	code, out, errs := try(t, "preflight", "--source", a, "--destination", b, "--topics", "orders,nowhere", "--name", "dr", "--state", "kafka")
	if code != exitOK || errs != "" {
		t.Fatalf("code %d, %s\n%s", code, errs, out)
	}
	for _, want := range []string{"mirror       dr, 1 topic\n", "source       a\n", "destination  b\n", "WARNS   source, topic nowhere\n        named, and not there\n", "\nready: nothing blocks, "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, errs = try(t, "preflight", "--source", a, "--destination", b, "--topics", ".*", "--json")
	var r preflight.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFailed || errs != "kafka-mirrors preflight: 1 of the findings block\n" {
		t.Fatalf("code %d, %v, %q\n%s", code, err, errs, out)
	}
	if r.Ready || r.Topics != 2 || r.Findings[0].Code != "partitions" || r.Findings[0].Topics[0] != "payments" {
		t.Errorf("%+v", r)
	}
	if topics := kfakeTopics(t, b); len(topics) != 1 {
		t.Errorf("the destination has %v", topics)
	}
	if code, _, errs = try(t, "preflight", "--source", a, "--topics", "("); code != exitUsage || !strings.Contains(errs, "--destination: is needed") {
		t.Errorf("code %d, %s", code, errs)
	}
}

// TestPreflightUnreachable: a dead destination is told, with the rest.
func TestPreflightUnreachable(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "orders"))
	code, out, _ := try(t, "preflight", "--source", a, "--destination", "127.0.0.1:1", "--topics", "orders", "--state", "file:"+filepath.Join(t.TempDir(), "state"))
	if code != exitFailed || !strings.Contains(out, "BLOCKS  destination\n        the cluster cannot be asked: ") || !strings.Contains(out, "source       a\n") {
		t.Errorf("code %d\n%s", code, out)
	}
	if code, out, _ = try(t, "preflight", "--source", a, "--destination", a, "--topics", "orders"); code != exitFailed || !strings.Contains(out, "source and destination are one cluster, a\n") {
		t.Errorf("code %d\n%s", code, out)
	}
	code, out, _ = try(t, "preflight", "--source", "127.0.0.1:1", "--destination", a, "--topics", "orders", "--join", "900", "--join-listener", "PLAINTEXT://127.0.0.1:9")
	if code != exitFailed || !strings.Contains(out, "the cluster cannot be joined: ") {
		t.Errorf("code %d\n%s", code, out)
	}
}

// kfakeTopics are the topics of a cluster.
func kfakeTopics(t *testing.T, address string) (names []string) {
	t.Helper()
	answer, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client(t, address))
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range answer.Topics {
		names = append(names, *topic.Topic)
	}
	return names
}

// TestPreflightDefined: a mirror in the state topic is looked at as the daemon would run it.
func TestPreflightDefined(t *testing.T) {
	s := newService(t, "orders")
	s.says(exitUnknown, "preflight --mirror a-to-b", "no such mirror")
	s.says(exitOK, "create --mirror a-to-b --mirror-config "+s.file)
	s.says(exitOK, "preflight --mirror a-to-b", "mirror       a-to-b, 0 topics\n", "no topic that this user sees matches", "ready: ")
	s.says(exitOK, "preflight --mirror a-to-b --topics ord.*", "mirror       a-to-b, 1 topic\n")
	s.says(exitUsage, "preflight --mirror a-to-b --topics (", "missing closing )")
	s.says(exitUsage, "preflight --mirror a-to-b --source x:1", "[mirror source]")
	s.says(exitUsage, "preflight", "go with --mirror")
}
