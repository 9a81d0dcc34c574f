package mirror_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// world is a store, some clusters by name, and a controller over them.
type world struct {
	*mirror.Controller
	t        *testing.T
	store    mirror.Store
	clusters map[string]*mock
	opts     mirror.ControllerOptions
	opener   mirror.Opener // instead of open

	mu     sync.Mutex
	broken map[string]error // names that the opener cannot open
	opened map[string]int   // attempts by mirror

	cancel context.CancelFunc
	ended  chan error
}

// inWorld runs f in a bubble; what is still running at its end is ended.
func inWorld(t *testing.T, f func(t *testing.T, w *world), clusters ...*mock) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: coordinator.NewMemory(), clusters: map[string]*mock{}, broken: map[string]error{}, opened: map[string]int{}}
		for _, c := range clusters {
			w.clusters[c.id] = c
		}
		w.renew()
		f(t, w)
		w.stop()
	})
}

// renew makes a controller as another process would.
func (w *world) renew() {
	w.t.Helper()
	open := w.opener
	if open == nil {
		open = w.open
	}
	c, err := mirror.NewController(w.store, open, &w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Controller = c
}

func (w *world) open(_ context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[d.Name]++
	for _, name := range []string{d.Source["cluster"], d.Destination["cluster"]} {
		if err := w.broken[name]; err != nil {
			return nil, nil, err
		}
		if w.clusters[name] == nil {
			return nil, nil, fmt.Errorf("no cluster %q", name)
		}
	}
	return w.clusters[d.Source["cluster"]], w.clusters[d.Destination["cluster"]], nil
}

func (w *world) breakOpening(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[name] = err
}

func (w *world) attempts(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened[name]
}

// run runs the controller until stop.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.ended = cancel, make(chan error, 1)
	c, ended := w.Controller, w.ended
	go func() { ended <- c.Run(ctx) }()
	pass(time.Second)
}

func (w *world) stop() {
	w.t.Helper()
	if w.cancel == nil {
		return
	}
	w.cancel()
	w.cancel = nil
	began := time.Now()
	if err := <-w.ended; err != nil {
		w.t.Errorf("Run: %v", err)
	}
	if d := time.Since(began); d > time.Second {
		w.t.Errorf("Run took %v to return", d)
	}
}

// restart ends the process and begins another.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.renew()
	w.run()
}

// define creates a mirror between two clusters.
func (w *world) define(name, from, to string, include ...string) coordinator.Definition {
	w.t.Helper()
	d, err := w.Create(w.t.Context(), definition(name, from, to, include...))
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func definition(name, from, to string, include ...string) coordinator.Definition {
	return coordinator.Definition{
		Name: name, Source: map[string]string{"cluster": from}, Destination: map[string]string{"cluster": to}, Include: include,
	}
}

func (w *world) describe(name string) mirror.Description {
	w.t.Helper()
	d, err := w.Describe(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// state is the state of a topic's first partition.
func (w *world) state(name, topic string) coordinator.State {
	w.t.Helper()
	p, _ := w.worst(name, topic)
	return p.State
}

func (w *world) worst(name, topic string) (mirror.PartitionStatus, bool) {
	w.t.Helper()
	for _, p := range w.describe(name).Status.Worst {
		if p.Topic == topic && p.Partition.Partition == 0 {
			return p, true
		}
	}
	return mirror.PartitionStatus{}, false
}

// states wants topics, in turn with their states.
func (w *world) states(name string, want map[string]coordinator.State) {
	w.t.Helper()
	for topic, state := range want {
		if got := w.state(name, topic); got != state {
			p, _ := w.worst(name, topic)
			w.t.Errorf("mirror %s, topic %s is %q, want %q: %s", name, topic, got, state, p.Reason)
		}
	}
}

// ok wants an operation to have worked for topics.
func (w *world) ok(topics ...string) func([]mirror.TopicResult, error) {
	return func(results []mirror.TopicResult, err error) {
		w.t.Helper()
		if err != nil {
			w.t.Errorf("error %v", err)
		}
		var got []string
		for _, r := range results {
			got = append(got, r.Topic)
			if r.Err != nil {
				w.t.Errorf("topic %s: %v", r.Topic, r.Err)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(topics) {
			w.t.Errorf("results for %v, want %v", got, topics)
		}
	}
}

// refused wants an operation to have failed for one topic alone, in one way.
func (w *world) refused(topic string, kind error) func([]mirror.TopicResult, error) {
	return func(results []mirror.TopicResult, err error) {
		w.t.Helper()
		wantIs(w.t, err, kind)
		found := false
		for _, r := range results {
			switch {
			case r.Topic == topic:
				found = true
				wantIs(w.t, r.Err, kind)
			case r.Err != nil:
				w.t.Errorf("topic %s: %v", r.Topic, r.Err)
			}
		}
		if !found {
			w.t.Errorf("no result for %s in %v", topic, results)
		}
	}
}
