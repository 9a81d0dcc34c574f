package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	post.look, post.first, post.other = 50*time.Millisecond, 3*time.Second, time.Second
	goleak.VerifyTestMain(m)
}

// output is what a command wrote, safe to be read meanwhile.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command is one run of the program inside the test.
type command struct {
	out, err output
	cancel   context.CancelFunc // the first signal
	code     chan int
}

// start runs a command line; width is the terminal's, 0 for none.
func start(t testing.TB, width int, args ...string) *command {
	t.Helper()
	c := &command{code: make(chan int, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() {
		c.code <- execute(ctx, args, streams{out: &c.out, err: &c.err, width: func() int { return width }})
	}()
	t.Cleanup(cancel)
	return c
}

// wait waits for the exit code.
func (c *command) wait(t testing.TB) int {
	t.Helper()
	select {
	case code := <-c.code:
		return code
	case <-time.After(time.Minute):
		t.Fatalf("still running; stdout:\n%s\nstderr:\n%s", c.out.String(), c.err.String())
		return 0
	}
}

// stop interrupts the command, wants code 0 and gives its last line.
func (c *command) stop(t testing.TB) string {
	t.Helper()
	c.cancel()
	if code := c.wait(t); code != exitOK {
		t.Fatalf("exit code %d, stderr:\n%s", code, c.err.String())
	}
	lines := strings.Split(strings.TrimRight(c.out.String(), "\n"), "\n")
	return lines[len(lines)-1]
}

// until waits for a condition.
func (c *command) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: waited in vain; stdout:\n%s\nstderr:\n%s", what, c.out.String(), c.err.String())
		}
	}
}

// try runs a command line that ends by itself.
func try(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := start(t, 0, args...)
	code = c.wait(t)
	return code, c.out.String(), c.err.String()
}

// newCluster starts an embedded cluster and gives its address.
func newCluster(t testing.TB, id string, opts ...kfake.Opt) string {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.ClusterID(id))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// client is a client that is closed with the test.
func client(t testing.TB, address string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// produce writes n records to a partition.
func produce(t testing.TB, address, topic string, partition int32, n int, text string) {
	t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s-%d", text, i), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))}
	}
	if err := client(t, address).ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume reads the first n records of a partition.
func consume(t testing.TB, address, topic string, partition int32, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := client(t, address, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	var all []*kgo.Record
	for len(all) < n {
		f := cl.PollRecords(ctx, n-len(all))
		if err := f.Err0(); err != nil {
			t.Fatalf("read %d of %d: %v", len(all), n, err)
		}
		all = append(all, f.Records()...)
	}
	return all
}

// file writes a file that is gone after the test.
func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
