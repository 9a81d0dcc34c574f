package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	statefile "github.com/clustermirror/mirror/store/file"
	statekafka "github.com/clustermirror/mirror/store/kafka"
)

// stateAt opens the state that lies in a cluster, as another process would.
func stateAt(t testing.TB, address, topic string) *statekafka.Store {
	t.Helper()
	s, err := statekafka.New(statekafka.Config{Bootstrap: []string{address}, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// intend stores what an operator wants of orders.
func intend(t testing.TB, s coordinator.Store, mirror string, desired coordinator.Desired) {
	t.Helper()
	if _, err := s.SaveIntents(t.Context(), mirror, []coordinator.Intent{{Topic: "orders", Desired: desired}}); err != nil {
		t.Fatal(err)
	}
}

// shows waits for a status line that ends like this.
func (c *command) shows(t testing.TB, end string) {
	t.Helper()
	line := regexp.MustCompile(`(?m) \| ` + regexp.QuoteMeta(end) + `$`)
	c.until(t, end, func() bool { return line.MatchString(c.out.String()) })
}

// copied is what a last line says was copied: "7 records".
func copied(t testing.TB, last string) string {
	t.Helper()
	m := regexp.MustCompile(`\| (\S+ records?), `).FindStringSubmatch(last)
	if m == nil {
		t.Fatalf("last line %q", last)
	}
	return m[1]
}

// equalTopics has verify compare orders at both clusters.
func equalTopics(t testing.TB, a, b string) {
	t.Helper()
	if code, stdout, stderr := try(t, "verify", "--source", a, "--destination", b, "--topics", "orders"); code != exitOK || strings.Count(stdout, " equal\n") != strings.Count(stdout, "\norders-") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestFailoverAndBack: a stop that another process stores is followed by the mirror
// that runs, holds over a restart, and the mirror back copies only what came later.
func TestFailoverAndBack(t *testing.T) {
	for name, topic := range map[string]string{"the usual topic": "", "another topic": "mirrors.state"} {
		t.Run(name, func(t *testing.T) {
			a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
			produce(t, a, "orders", 0, 40, "first")
			there := []string{"run", "--name", "a-to-b", "--source", a, "--destination", b, "--topics", ".*", "--state", "kafka", "--state-topic", topic}
			back := []string{"run", "--name", "b-to-a", "--source", b, "--destination", a, "--topics", ".*", "--state", "kafka", "--state-topic", topic}
			c := start(t, 0, there...)
			consume(t, b, "orders", 0, 40)
			intend(t, stateAt(t, b, topic), "a-to-b", coordinator.WantStopped)
			c.shows(t, "1 topic, 1 STOPPED")
			if n := copied(t, c.stop(t)); n != "40 records" {
				t.Errorf("copied %s", n)
			}
			c = start(t, 0, there...)
			c.shows(t, "1 topic, 1 STOPPED")
			c.stop(t)

			produce(t, b, "orders", 0, 7, "second")
			c = start(t, 0, back...)
			got := consume(t, a, "orders", 0, 47)
			want := consume(t, b, "orders", 0, 47)
			for i := range want {
				if got[i].Offset != want[i].Offset || string(got[i].Value) != string(want[i].Value) {
					t.Fatalf("record %d is %+v, want %+v", i, got[i], want[i])
				}
			}
			c.shows(t, "1 topic, 1 MIRRORING")
			if c.err.String() != "" {
				t.Errorf("stderr: %s", c.err.String())
			}
			if n := copied(t, c.stop(t)); n != "8 records" { // the record that the stop locked late writes out with is one
				t.Errorf("%s copied back, want the delta of 8", n)
			}
			equalTopics(t, b, a)
		})
	}
}

// TestRestartKeepsPause: what was paused stays so with each kind of state that
// outlives the process, and goes on without.
func TestRestartKeepsPause(t *testing.T) {
	tests := []struct {
		name  string
		state func(t *testing.T, b, dir string) (flag string, pause coordinator.Store, done func())
		want  string
	}{
		{"kafka", func(t *testing.T, b, _ string) (string, coordinator.Store, func()) {
			return "kafka", stateAt(t, b, ""), func() {}
		}, "1 topic, 1 PAUSED"},
		{"file", func(t *testing.T, _, dir string) (string, coordinator.Store, func()) {
			s, err := statefile.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			return "file:" + dir, s, func() { s.Close() }
		}, "1 topic, 1 PAUSED"},
		{"memory", func(*testing.T, string, string) (string, coordinator.Store, func()) {
			return "memory", coordinator.NewMemory(), func() {}
		}, "1 topic, 1 MIRRORING"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
			produce(t, a, "orders", 0, 5, "first")
			flag, s, done := tt.state(t, b, filepath.Join(t.TempDir(), "state"))
			args := []string{"run", "--name", "dr", "--source", a, "--destination", b, "--topics", "orders", "--state", flag}
			if tt.name == "file" {
				done() // the folder serves one at a time
			}
			c := start(t, 0, args...)
			consume(t, b, "orders", 0, 5)
			if tt.name == "file" {
				c.stop(t)
				_, s, done = tt.state(t, b, strings.TrimPrefix(flag, "file:"))
				intend(t, s, "dr", coordinator.WantPaused)
				done()
				c = start(t, 0, args...)
			} else {
				intend(t, s, "dr", coordinator.WantPaused)
			}
			c.shows(t, tt.want)
			c.stop(t)
			produce(t, a, "orders", 0, 3, "second")
			c = start(t, 0, args...)
			c.shows(t, tt.want)
			want := "0 records"
			if tt.name == "memory" {
				consume(t, b, "orders", 0, 8)
				c.until(t, "counted", func() bool { return regexp.MustCompile(`lag 0 records .* [1-9] records/s`).MatchString(c.out.String()) })
				want = "3 records"
			}
			if n := copied(t, c.stop(t)); n != want {
				t.Errorf("%s copied after the restart, want %s", n, want)
			}
		})
	}
}

// TestPeerFolder: a failback finds its position in the folder of the mirror there.
func TestPeerFolder(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	intoB, intoA := filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "a")
	produce(t, a, "orders", 0, 10, "first")
	there := []string{"run", "--name", "a-to-b", "--source", a, "--destination", b, "--topics", "orders", "--state", "file:" + intoB}
	c := start(t, 0, there...)
	consume(t, b, "orders", 0, 10)
	c.stop(t)
	s, err := statefile.Open(intoB, nil)
	if err != nil {
		t.Fatal(err)
	}
	intend(t, s, "a-to-b", coordinator.WantStopped)
	s.Close()
	c = start(t, 0, there...)
	c.shows(t, "1 topic, 1 STOPPED")

	back := []string{"run", "--name", "b-to-a", "--source", b, "--destination", a, "--topics", "orders", "--state", "file:" + intoA, "--events"}
	code, _, stderr := try(t, append(back, "--peer-state", "file:"+intoB)...)
	want := "kafka-mirrors run: --peer-state: " + intoB + ": folder of state files is in use: has the run of the mirror the other way ended? " +
		"A folder serves one process at a time, --state kafka any number\n"
	if diff := cmp.Diff([]any{exitFailed, want}, []any{code, stderr}); diff != "" {
		t.Error(diff)
	}
	c.stop(t)
	produce(t, b, "orders", 0, 4, "second")
	c = start(t, 0, append(back, "--peer-state", "file:"+intoB)...)
	consume(t, a, "orders", 0, 14)
	c.shows(t, "1 topic, 1 MIRRORING")
	if n := copied(t, c.stop(t)); n != "5 records" { // one is that of the stop
		t.Errorf("%s copied back, want the delta of 5", n)
	}
	s, err = statefile.Open(intoA, nil) // both folders were let go
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	records, err := s.Load(t.Context(), "b-to-a")
	if err != nil || len(records) != 1 || !strings.Contains(records[0].Alignment, "the mirror the other way stopped at 10") {
		t.Errorf("%v: records %+v", err, records)
	}
	if records[0].Partition != (cluster.Partition{Topic: "orders"}) {
		t.Errorf("record of %v", records[0].Partition)
	}
}

// TestFolderInUse: the second run says which folder, and touches nothing.
func TestFolderInUse(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"run", "--source", a, "--destination", b, "--topics", "orders", "--state", "file:" + dir}
	c := start(t, 0, args...)
	c.shows(t, "1 topic, 1 MIRRORING")
	code, stdout, stderr := try(t, args...)
	want := "kafka-mirrors run: --state: " + dir + ": folder of state files is in use: is another kafka-mirrors running with it? " +
		"A folder serves one process at a time, --state kafka any number\n"
	if diff := cmp.Diff([]any{exitFailed, "", want}, []any{code, stdout, stderr}); diff != "" {
		t.Error(diff)
	}
	c.stop(t)
	c = start(t, 0, args...)
	c.shows(t, "1 topic, 1 MIRRORING")
	c.stop(t)
}

// TestFolderDamaged: a file that cannot be read is named.
func TestFolderDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mirror-dr.json"), []byte("no state"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := try(t, "run", "--source", "a:1", "--destination", "b:1", "--topics", "x", "--state", "file:"+dir)
	if code != exitFailed || !strings.HasPrefix(stderr, "kafka-mirrors run: --state: "+filepath.Join(dir, "mirror-dr.json")+": ") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestStateUnreadable: status lines go on while the state cannot be read, and name it.
func TestStateUnreadable(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "orders"))
	b := newCluster(t, "b", kfake.SeedTopics(1, statekafka.DefaultTopic)) // not compacted
	c := start(t, 0, "run", "--source", a, "--destination", b, "--topics", "orders", "--state", "kafka")
	c.until(t, "named", func() bool {
		return regexp.MustCompile(`(?m)^\S+ topics: .*` + statekafka.DefaultTopic + `.*cleanup\.policy`).MatchString(c.out.String())
	})
	if strings.Contains(c.out.String(), "MIRRORING") {
		t.Errorf("mirrored without its state:\n%s", c.out.String())
	}
	c.stop(t)
}

// TestSilentCluster: a destination that takes connections and never answers, which
// holds the state too, holds up neither the status nor the end.
func TestSilentCluster(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "orders"))
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	})
	defer accepting.Wait()
	defer silent.Close()
	c := start(t, 80, "run", "--source", a, "--destination", silent.Addr().String(), "--topics", "orders", "--state", "kafka")
	c.until(t, "redrawn", func() bool { return strings.Count(c.out.String(), "\r\x1b[J") >= 3 })
	if last := c.stop(t); !strings.Contains(last, "mirror: stopped after ") {
		t.Errorf("last line %q", last)
	}
}
