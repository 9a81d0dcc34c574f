package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
)

// freePort is one that nobody listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestRealJoined is the way there and back with a process that is a broker of the
// destination each time: nothing is rebuilt, and only the delta comes back. A second one stands
// by and goes on when the first one ends.
func TestRealJoined(t *testing.T) {
	from, to := kafkatest.Start(t, kafkatest.Options{}), kafkatest.Start(t, kafkatest.Options{})
	from.CreateTopic(t, "orders", 2, 1, nil)
	a, b := from.Bootstrap()[0], to.Bootstrap()[0]
	leg := func(name, source, destination string) []string {
		return []string{"run", "--name", name, "--source", source, "--destination", destination, "--topics", ".*", "--state", "kafka",
			"--salvage", filepath.Join(t.TempDir(), "salvage"), "--join", "100-102",
			"--join-bind", "127.0.0.1", "--join-listener", fmt.Sprint("INTERNAL=PLAINTEXT://127.0.0.1:", freePort(t)),
			"--join-listener", fmt.Sprint("CLIENT=PLAINTEXT://127.0.0.1:", freePort(t))}
	}
	produce(t, a, "orders", 0, 500, "first")
	there := leg("a-to-b", a, b)
	looks := func(args []string, texts ...string) { // before each way: nothing blocks, and nothing is taken
		t.Helper()
		code, out, errs := try(t, append([]string{"preflight"}, args[1:]...)...)
		for _, text := range append(texts, "\nready: ") {
			if code != exitOK || !strings.Contains(out, text) {
				t.Errorf("code %d, no %q: %s\n%s", code, text, errs, out)
			}
		}
	}
	looks(there, "nothing was found")
	c := start(t, 0, there...)
	consume(t, b, "orders", 0, 500)
	c.stop(t)
	produce(t, a, "orders", 0, 100, "second")
	first := whoWeAre(t, b, "a-to-b")
	c = start(t, 0, there...) // the same broker again
	consume(t, b, "orders", 0, 600)
	if now := whoWeAre(t, b, "a-to-b"); now.Identity != first.Identity || now.Holder == "" || first.Holder != "" {
		t.Errorf("it was %+v and is %+v", first, now)
	}
	second, cl := start(t, 0, leg("a-to-b", a, b)...), to.Client(t)
	second.until(t, "standby", func() bool {
		return strings.Contains(second.out.String(), "a-to-b: standby") && inSync(t, cl, "orders") == 4
	})
	c.stop(t)
	produce(t, a, "orders", 0, 50, "third")
	consume(t, b, "orders", 0, 650)
	c = second
	intend(t, stateAt(t, b, ""), "a-to-b", coordinator.WantStopped)
	c.shows(t, "1 topic, 2 STOPPED")
	c.stop(t)

	produce(t, a, "orders", 0, 3, "lost") // which no mirror has taken to b
	produce(t, b, "orders", 0, 20, "delta")
	back := leg("b-to-a", b, a)
	looks(back, "LOSES   destination, topic orders\n        3 offsets there never reached the source")
	c = start(t, 0, back...)
	says := func(text string) { c.until(t, text, func() bool { return strings.Contains(c.out.String(), text) }) }
	says("1 topic, 2 MIRRORING | 3 truncated")
	consume(t, a, "orders", 0, 670)
	intend(t, stateAt(t, a, ""), "b-to-a", coordinator.WantStopped)
	says("1 topic, 2 STOPPED | 3 truncated")
	if n := copied(t, c.stop(t)); n != "20 records" {
		t.Errorf("%s copied back, want the delta of 20", n)
	}
	equalTopics(t, a, b)
	produce(t, a, "orders", 0, 1, "open")
}

// inSync counts the replicas of a topic that are.
func inSync(t *testing.T, cl *kgo.Client, topic string) (n int) {
	t.Helper()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	m, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Topics[0].Partitions {
		n += len(p.ISR)
	}
	return n
}

// whoWeAre is the identity that stands in the state topic.
func whoWeAre(t *testing.T, bootstrap, mirror string) broker.Kept {
	t.Helper()
	all, err := broker.NewShared(stateAt(t, bootstrap, ""), mirror).Identities().All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("identities %+v, %v", all, err)
	}
	return all[0]
}
