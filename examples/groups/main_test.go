package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/kafka"
)

// page is what the program prints; it is told when something is printed.
type page struct {
	mu    sync.Mutex
	text  strings.Builder
	wrote chan struct{}
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.wrote <- struct{}{}:
	default:
	}
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// TestRun is what a reader of the example sees: a group follows, another one as far as
// records have come, and a third is not named.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clusterOf := func(records int) (addrs []string, end *kafka.Cluster, closeAll func()) {
		f, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(f.ListenAddrs()...), kgo.DefaultProduceTopic("orders"))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for range records {
			if err := cl.ProduceSync(ctx, kgo.StringRecord("a record")).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if end, err = kafka.New(kafka.Config{Bootstrap: f.ListenAddrs()}); err != nil {
			t.Fatal(err)
		}
		return f.ListenAddrs(), end, func() {
			end.Close()
			f.Close()
		}
	}
	a, from, closeFrom := clusterOf(20)
	defer closeFrom()
	b, to, closeTo := clusterOf(10)
	defer closeTo()
	p := cluster.Partition{Topic: "orders"}
	for group, at := range map[string]int64{"billing": 7, "web": 15, "other": 3} {
		if err := from.Commit(ctx, group, []cluster.Committed{{Partition: p, Offset: at}}); err != nil {
			t.Fatal(err)
		}
	}
	running, stop := context.WithCancel(ctx)
	out, ended := &page{wrote: make(chan struct{}, 1)}, make(chan error, 1)
	go func() {
		ended <- run(running, out, a, b, []string{"billing", "w.*"}, t.TempDir(), 10*time.Millisecond)
	}()
	for at := func(group string) int64 {
		answers, err := to.Committed(ctx, []string{group})
		if err != nil {
			t.Fatal(err)
		}
		if len(answers[0].Offsets) == 0 {
			return -1
		}
		return answers[0].Offsets[0].Offset
	}; at("billing") != 7 || at("web") != 10; {
		select {
		case <-out.wrote:
		case <-ctx.Done():
			t.Fatalf("billing is at %d, web at %d:\n%s", at("billing"), at("web"), out)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "2 groups matched, 2 offsets of 2 groups written, 1 wait for records") {
		t.Error(text)
	}
}
