package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// TestStop: another process has the run stop its topics, some of them or all, and what no run
// follows is said.
func TestStop(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(2, "orders", "audit")), newCluster(t, "b")
	produce(t, a, "orders", 0, 40, "first")
	produce(t, a, "audit", 0, 10, "first")
	stop := func(code int, texts []string, more ...string) {
		t.Helper()
		says(t, code, append([]string{"stop", "--name", "a-to-b", "--destination", b}, more...), texts...)
	}
	stop(exitUnknown, []string{`mirror "a-to-b": no such mirror`})
	c := start(t, 0, "run", "--name", "a-to-b", "--source", a, "--destination", b, "--topics", "orders,audit", "--state", "kafka")
	consume(t, b, "orders", 0, 40)
	consume(t, b, "audit", 0, 10)
	stop(exitOK, []string{"orders: stopped, 2 partitions"}, "--topics", "ord.*")
	c.shows(t, "2 topics, 2 MIRRORING, 2 STOPPED")
	stop(exitFailed, []string{"nothing of mirror"}, "--exclude", ".*")
	stop(exitOK, []string{"audit: stopped, 2 partitions", "orders: stopped, 2 partitions"})
	c.stop(t)
}

// TestStopUnfollowed: without a run it is said what is left, and the next run begins with it.
func TestStopUnfollowed(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	produce(t, a, "orders", 0, 40, "first")
	run := []string{"run", "--name", "a-to-b", "--source", a, "--destination", b, "--topics", "orders", "--state", "kafka"}
	c := start(t, 0, run...)
	consume(t, b, "orders", 0, 40)
	c.stop(t)
	says(t, exitFailed, []string{"stop", "--name", "a-to-b", "--destination", b, "--timeout", "2s"}, "orders-0 is MIRRORING", "the wish is stored")
	c = start(t, 0, run...)
	c.shows(t, "1 topic, 1 STOPPED")
	c.stop(t)
}

// TestStopCannotLook: what is left is said as it stood at first when the store answers no more.
func TestStopCannotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := coordinator.NewMemory()
		r := coordinator.Record{Partition: cluster.Partition{Topic: "orders"}, State: coordinator.StateMirroring, OwnerEpoch: 1, StateEpoch: 1}
		if err := errors.Join(store.Save(t.Context(), "m", []coordinator.Record{r})...); err != nil {
			t.Fatal(err)
		}
		loads := 0
		store.SetFault(func(op string, _ coordinator.Record) error {
			if op != "load" {
				return nil
			}
			if loads++; loads > 1 {
				return errors.New("the store is away")
			}
			return nil
		})
		filter, err := topics.NewFilter([]string{".*"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := &stopFlags{operateFlags{mirror: "m"}}
		err = f.stop(ctx, store, filter, io.Discard)
		for _, want := range []string{"orders-0 is MIRRORING", "the wish is stored"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	})
}

func TestStopFlags(t *testing.T) {
	code, _, stderr := try(t, "stop", "--timeout", "0s", "--state-topic", "a/b", "--topics", "(")
	for _, want := range []string{"--bootstrap-server: is needed", "--timeout: 0s", "--state-topic", "("} {
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %q is not in:\n%s", code, want, stderr)
		}
	}
}
