package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror"
)

// service is a destination with a daemon, or without one, and its source.
type service struct {
	t    *testing.T
	a, b string
	file string // of the mirror
}

func newService(t *testing.T, topics ...string) *service {
	t.Helper()
	t.Parallel() // most of the time is waiting
	s := &service{t: t, a: newCluster(t, "a", kfake.SeedTopics(2, topics...)), b: newCluster(t, "b")}
	s.file = file(t, "a.properties", "bootstrap.servers="+s.a+"\nretry.min=100ms\n")
	return s
}

// daemon runs the daemon of a cluster.
func (s *service) daemon(at string) *command {
	s.t.Helper()
	return start(s.t, 0, "daemon", "--bootstrap-server", at, "--no-salvage")
}

// says runs a command at the destination, and wants its exit code and texts.
func (s *service) says(code int, line string, texts ...string) string {
	s.t.Helper()
	return s.saysAt(s.b, code, line, texts...)
}

func (s *service) saysAt(at string, code int, line string, texts ...string) string {
	s.t.Helper()
	args := append(strings.Fields(line), "--bootstrap-server", at)
	got, stdout, stderr := try(s.t, args...)
	if got != code {
		s.t.Fatalf("%s: exit code %d, want %d\n%s%s", line, got, code, stdout, stderr)
	}
	for _, text := range texts {
		if !strings.Contains(stdout+stderr, text) {
			s.t.Errorf("%s: %q is not in:\n%s%s", line, text, stdout, stderr)
		}
	}
	return stdout
}

// TestService is the way of a mirror by commands alone: made, begun, paused, resumed, stopped with
// a dead source, mirrored back, deleted.
func TestService(t *testing.T) {
	s := newService(t, "orders", "orders.test", "audit")
	produce(t, s.a, "orders", 0, 40, "first")
	daemon := s.daemon(s.b)
	s.says(exitOK, "list", "no mirror is defined")
	s.says(exitOK, "create --mirror a-to-b --mirror-config "+s.file, "a-to-b: created", "a-to-b: the daemon runs it")
	s.says(exitOK, "create --mirror a-to-b --mirror-config "+s.file, "is there already")
	s.says(exitOK, "list", "a-to-b  a       b            yes   none")
	s.says(exitUsage, "start --mirror a-to-b", "--topics: is needed")
	s.says(exitOK, "start --mirror a-to-b --topics ord.* --exclude orders[.]test", "orders: mirroring, 2 partitions")
	consume(t, s.b, "orders", 0, 40)
	equalTopics(t, s.a, s.b)
	s.says(exitOK, "start --mirror a-to-b --topics audit", "audit: mirroring, 2 partitions")
	s.says(exitOK, "start --mirror a-to-b --topics none.*", "0 topics matched")
	out := s.says(exitOK, "describe --mirror a-to-b", "State:       ok, 0 records behind", "2 topics, 4 MIRRORING", "retry.min=100ms", "ord.*,audit,none.*")
	if strings.Contains(out, "orders.test") {
		t.Errorf("what was excluded is mirrored:\n%s", out)
	}
	s.says(exitOK, "pause --mirror a-to-b --topics orders", "orders: paused, 2 partitions")
	produce(t, s.a, "orders", 0, 5, "second")
	s.says(exitOK, "list", "2 MIRRORING, 2 PAUSED")
	s.says(exitOK, "resume --mirror a-to-b", "audit: mirroring", "orders: mirroring, 2 partitions")
	consume(t, s.b, "orders", 0, 45)
	s.says(exitState, "delete --mirror a-to-b", "topic audit: the topic is not stopped: is MIRRORING", "topic orders: the topic is not stopped")
	s.says(exitOK, "stop --mirror a-to-b", "audit: stopped, 2 partitions", "orders: stopped, 2 partitions")
	s.says(exitState, "resume --mirror a-to-b --topics orders", "the topic is stopped")
	s.says(exitOK, "stop --mirror a-to-b --dry-run", "orders: would be stopped (now 2 STOPPED)")
	daemon.stop(t)

	produce(t, s.b, "orders", 0, 7, "third")
	daemon = s.daemon(s.a)
	back := file(t, "b.properties", "bootstrap.servers="+s.b)
	s.saysAt(s.a, exitOK, "create --mirror b-to-a --mirror-config "+back, "b-to-a: created")
	s.saysAt(s.a, exitOK, "start --mirror b-to-a --topics orders", "orders: mirroring, 2 partitions")
	consume(t, s.a, "orders", 0, 52)
	daemon.until(t, "copied", func() bool { return strings.Contains(s.saysAt(s.a, exitOK, "describe"), "0 records behind") })
	equalTopics(t, s.b, s.a)
	s.saysAt(s.a, exitOK, "promote --mirror b-to-a", "orders: promoted")
	s.saysAt(s.a, exitOK, "delete --mirror b-to-a", "b-to-a: deleted")
	s.saysAt(s.a, exitOK, "list", "no mirror is defined")
	s.saysAt(s.a, exitUnknown, "describe --mirror b-to-a", `mirror "b-to-a": no such mirror`)
	daemon.stop(t)
	s.says(exitOK, "delete --mirror a-to-b", "a-to-b: deleted") // with no daemon
}

// TestSecondDaemon stands by while the first one runs, and goes on when that has ended.
func TestSecondDaemon(t *testing.T) {
	s := newService(t, "orders")
	produce(t, s.a, "orders", 0, 10, "first")
	first := s.daemon(s.b)
	s.says(exitOK, "create --mirror m --mirror-config "+s.file)
	s.says(exitOK, "start --mirror m --topics orders")
	second := s.daemon(s.b)
	second.until(t, "standing by", func() bool { return strings.Contains(second.out.String(), "standing by: the mirrors are run by ") })
	first.stop(t)
	produce(t, s.a, "orders", 0, 10, "second")
	consume(t, s.b, "orders", 0, 20)
	second.until(t, "at work", func() bool { return strings.Contains(second.out.String(), "m: ok") })
	third := s.daemon(s.b)
	third.until(t, "standing by", func() bool { return strings.Contains(third.out.String(), "standing by") })
	third.stop(t)
	second.stop(t)
	for _, c := range []*command{second, third} {
		if strings.Contains(c.err.String(), "FAILED") {
			t.Errorf("stderr:\n%s", c.err.String())
		}
	}
}

// TestDaemonAlone: what it cannot reach is said, and it ends when told to.
func TestDaemonAlone(t *testing.T) {
	c := start(t, 0, "daemon", "--bootstrap-server", "127.0.0.1:1")
	c.until(t, "said", func() bool { return strings.Contains(c.out.String(), "127.0.0.1:1") })
	c.cancel()
	if code := c.wait(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestDaemonEvents: whatever happens to a mirror of a daemon is told with its name.
func TestDaemonEvents(t *testing.T) {
	plain, named := reflect.ValueOf(events(func(string) {}, true)), reflect.ValueOf(namedEvents(func(string) {}, true))
	for i := range plain.NumField() {
		if plain.Field(i).IsNil() != named.Field(i).IsNil() {
			t.Errorf("%s is told by one of run and daemon alone", plain.Type().Field(i).Name)
		}
	}
	var got string
	namedEvents(func(line string) { got = line }, true).Topic(mirror.TopicEvent{Mirror: "dr", Topic: "orders"})
	if want := "dr: orders created"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}
