package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
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

// TestRun is what a reader of the example sees: rules come, one goes with the source's, one that is not
// named stays away, and the destination's own stays.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rule := func(user, operation string) cluster.Binding {
		return cluster.Binding{ResourceType: "TOPIC", Name: "orders", PatternType: "LITERAL", Principal: "User:" + user, Host: "*", Operation: operation, Permission: "ALLOW"}
	}
	clusterOf := func(rules ...cluster.Binding) (addresses string, end *kafka.Cluster, closeAll func()) {
		f, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		if end, err = kafka.New(kafka.Config{Bootstrap: f.ListenAddrs()}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(end.CreateACLs(ctx, rules)...); err != nil {
			t.Fatal(err)
		}
		return strings.Join(f.ListenAddrs(), ","), end, func() {
			end.Close()
			f.Close()
		}
	}
	read, write, other, own := rule("app", "READ"), rule("app", "WRITE"), rule("other", "READ"), rule("app", "ALTER")
	a, from, closeFrom := clusterOf(read, write, other)
	defer closeFrom()
	b, to, closeTo := clusterOf(own)
	defer closeTo()
	running, stop := context.WithCancel(ctx)
	out, ended := &page{wrote: make(chan struct{}, 1)}, make(chan error, 1)
	go func() {
		ended <- run(running, out, settings{
			from: a, to: b, state: t.TempDir(), rules: "principal=User:app", remove: true, every: 10 * time.Millisecond,
		})
	}()
	are := func(want ...cluster.Binding) {
		t.Helper()
		for {
			all, err := to.ACLs(ctx)
			there := map[cluster.Binding]bool{}
			for _, r := range all {
				there[r] = true
			}
			wanted := map[cluster.Binding]bool{}
			for _, r := range want {
				wanted[r] = true
			}
			d := cmp.Diff(wanted, there)
			if err == nil && d == "" {
				return
			}
			select {
			case <-out.wrote:
			case <-ctx.Done():
				t.Fatalf("%v %s\n%s", err, d, out)
			}
		}
	}
	are(own, read, write)
	if err := errors.Join(from.DeleteACLs(ctx, []cluster.Binding{write})...); err != nil {
		t.Fatal(err)
	}
	are(own, read)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "2 rules matched, 2 created, 0 deleted") || !strings.Contains(text, "1 rules matched, 0 created, 1 deleted") {
		t.Error(text)
	}
}
