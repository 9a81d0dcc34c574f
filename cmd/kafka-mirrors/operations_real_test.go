package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// page runs the page for operators: its commands with the built program on real clusters, and
// between them what its comments say happens (<!-- test: kill a -->).
type page struct {
	t       *testing.T
	program string
	dir     string // where files of the page are, and commands run
	at      map[string]*kafkatest.Cluster
	daemons map[string][]*exec.Cmd // the oldest first
	written map[string]int         // records by topic
	said    output                 // by the daemons
}

// TestRealOperations: every command of docs/operations.md does what stands there.
func TestRealOperations(t *testing.T) {
	nodes := 1
	if os.Getenv("MIRROR_LONG") != "" {
		nodes = 3
	}
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, dir: t.TempDir(), at: map[string]*kafkatest.Cluster{}, daemons: map[string][]*exec.Cmd{}, written: map[string]int{}}
	for _, name := range []string{"a", "b"} {
		p.at[name] = kafkatest.Start(t, kafkatest.Options{Nodes: nodes})
	}
	p.program = filepath.Join(p.dir, "kafka-mirrors")
	if out, err := exec.Command("go", "build", "-o", p.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		for name := range p.daemons {
			for len(p.daemons[name]) > 0 {
				p.terminate(name)
			}
		}
		if t.Failed() {
			t.Logf("the daemons said:\n%s", p.said.String())
		}
	})
	for _, topic := range []string{"orders", "orders.test", "payments"} {
		p.at["a"].CreateTopic(t, topic, 2, int16(nodes), nil)
	}
	p.write("a", "orders", "orders.test", "payments")
	if n := p.read(string(text)); n < 25 {
		t.Errorf("%d commands were run, the page has more", n)
	}
	p.refusals()
}

// refusals are what does not work, each with its code; the daemons run still.
func (p *page) refusals() {
	for name, text := range map[string]string{"bad.properties": "colour=red\n", "other.properties": "bootstrap.servers=a1:9092\nclient.id=other\n", "self.properties": "bootstrap.servers=b1:9092\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(p.here(text)), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, l := range []struct {
		code int
		line string
	}{
		{exitUnknown, "stop --mirror a-to-b"},
		{exitUsage, "create --mirror c --mirror-config bad.properties"},
		{exitUsage, "create --mirror c --mirror-config none.properties"},
		{exitFailed, "create --mirror c --mirror-config self.properties"},
		{exitOK, "create --mirror c --mirror-config a.properties"},
		{exitExists, "create --mirror c --mirror-config other.properties"},
		{exitOK, "start --mirror c --topics orders.test"},
		{exitState, "delete --mirror c"},
		{exitOK, "stop --mirror c"},
		{exitState, "pause --mirror c --topics orders.test"},
		{exitOK, "delete --mirror c"},
	} {
		p.run("kafka-mirrors "+l.line+" --bootstrap-server b1:9092", l.code)
	}
	p.run("kafka-mirrors list --bootstrap-server 127.0.0.1:1 --timeout 2s", exitUnreachable)
}

var (
	comment = regexp.MustCompile(`^<!-- (test|file|exit): (.*) -->$`)
	fence   = regexp.MustCompile("^```([a-z]*)$")
)

// read does what stands in the page, line by line, and says how many commands that were.
func (p *page) read(text string) (commands int) {
	file, code := "", exitOK
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if m := comment.FindStringSubmatch(lines[i]); m != nil {
			switch m[1] {
			case "test":
				p.happens(strings.Fields(m[2]))
			case "file":
				file = m[2]
			case "exit":
				code, _ = strconv.Atoi(m[2])
			}
			continue
		}
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		begin := i + 1
		for i = begin; lines[i] != "```"; i++ {
			if m[1] == "sh" {
				p.run(lines[i], code)
				commands++
			}
		}
		if m[1] == "properties" && file != "" {
			body := p.here(strings.Join(lines[begin:i], "\n"))
			if err := os.WriteFile(filepath.Join(p.dir, file), []byte(body), 0o600); err != nil {
				p.t.Fatal(err)
			}
		}
		file, code = "", exitOK
	}
	return commands
}

// here puts the real addresses and folders in the place of the page's.
func (p *page) here(text string) string {
	for name, c := range p.at {
		text = strings.ReplaceAll(text, name+"1:9092", strings.Join(c.Bootstrap(), ","))
	}
	return strings.ReplaceAll(text, "/var/lib/kafka-mirrors", p.dir)
}

// run runs a command line, a daemon until it is terminated.
func (p *page) run(line string, code int) {
	p.t.Helper()
	words := strings.Fields(strings.ReplaceAll(p.here(line), "'", ""))
	if len(words) < 2 || words[0] != "kafka-mirrors" {
		p.t.Fatalf("the page has a command that is not run: %s", line)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	if words[1] == "daemon" {
		cancel()
		p.daemon(words[1:])
		return
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, words[1:]...)
	cmd.Dir = p.dir
	began := time.Now()
	out, _ := cmd.CombinedOutput()
	p.t.Logf("%.1f s: %s\n%s", time.Since(began).Seconds(), line, out)
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("exit code %d, want %d", got, code)
	}
}

func (p *page) daemon(words []string) {
	cmd := exec.Command(p.program, words...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &p.said, &p.said
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	for name, c := range p.at {
		if words[2] == strings.Join(c.Bootstrap(), ",") {
			p.daemons[name] = append(p.daemons[name], cmd)
		}
	}
}

// terminate ends the oldest daemon of a cluster as its operator would, and wants it to end well.
func (p *page) terminate(name string) {
	cmd := p.daemons[name][0]
	p.daemons[name] = p.daemons[name][1:]
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		p.t.Errorf("the daemon of %s ended with %v", name, err)
	}
}

// happens does what a comment says.
func (p *page) happens(words []string) {
	p.t.Helper()
	c := p.at[words[1]]
	topics := []string{"orders", "payments"}
	switch words[0] {
	case "terminate":
		p.terminate(words[1])
	case "kill":
		for id := range c.Nodes() {
			c.Kill(id + 1)
		}
	case "restart":
		var all sync.WaitGroup // one alone is no quorum
		for id := range c.Nodes() {
			all.Go(func() { c.Restart(id + 1) })
		}
		all.Wait()
	case "write":
		if len(words) > 2 {
			topics = words[2:]
		}
		p.write(words[1], topics...)
	case "unseen": // by any mirror
		produce(p.t, c.Bootstrap()[0], words[2], 0, 3, "unseen")
	case "copied":
		if len(words) > 3 {
			topics = words[3:]
		}
		for _, topic := range topics {
			consume(p.t, p.at[words[2]].Bootstrap()[0], topic, 0, p.written[topic])
		}
	default:
		p.t.Fatalf("the page has a comment that nothing is done about: %q", words)
	}
}

// write writes 100 records to the first partition of topics.
func (p *page) write(at string, topics ...string) {
	p.t.Helper()
	for _, topic := range topics {
		produce(p.t, p.at[at].Bootstrap()[0], topic, 0, 100, fmt.Sprint(at, p.written[topic]))
		p.written[topic] += 100
	}
}
