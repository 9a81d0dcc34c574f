package kafkatest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// JavaFollower is a console consumer that reads while a topic is written.
type JavaFollower struct{ process *Process }

// JavaFollow starts the console consumer of the cluster's own release, which reads on until
// the test ends. It takes a spec of one partition, so that it has no group that would
// remember for it where it is.
func (c *Cluster) JavaFollow(ctx context.Context, t testing.TB, s ConsumeSpec) *JavaFollower {
	t.Helper()
	reader, libs, err := c.reader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &JavaFollower{spawn(t, c.classOf(reader, libs, filepath.Join(c.dir, "follower.log"), []string{"-Xmx256m"}, reader.consumer, c.javaArgs(reader, s)...))}
}

// Lines are the records so far, in the order in which they came.
func (f *JavaFollower) Lines(t testing.TB) (out []Line) {
	t.Helper()
	for _, text := range f.process.Lines() {
		if !strings.Contains(text, "Partition:") {
			continue // what the program says besides
		}
		l, err := parseJava(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}
