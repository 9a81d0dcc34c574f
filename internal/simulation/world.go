package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// topicName is the one topic of every world.
const topicName = "t"

// clusterNames are the clusters of every world.
func clusterNames() []string { return []string{"A", "B", "C"} }

// world is what a schedule happens in.
type world struct {
	setup    Setup
	logger   *slog.Logger
	clusters map[string]*memory.Cluster
	stores   map[string]*coordinator.Memory // of mirrors into the cluster
	never    chan struct{}                  // closed at the end
	crashing sync.WaitGroup
	calm     bool       // nothing goes wrong: what costs time is not checked
	saving   sync.Mutex // one write to a store at a time, with what the oracle says to it

	mu     sync.Mutex
	byName map[string]*process              // by the name of their clients
	mute   map[string]time.Time             // stores that refuse until then
	txns   map[transaction]*memory.Producer // open, by their number

	// The schedule's own.
	launched  map[string]int        // processes so far, by mirror
	processes map[string][]*process // by mirror; the last one is the present one
	closed    map[string]bool       // mirrors whose process is not to run
	ended     map[string]bool       // mirrors whose topic was last asked to be stopped
	failed    map[string]bool       // mirrors whose last stop gave an error
	output    strings.Builder       // of dump and status
	serial    int64                 // records so far
	oracle    *oracle
}

// transaction is an open one, by the number that schedules give it.
type transaction struct {
	at string
	n  int64
}

func newWorld(set Setup, logger *slog.Logger) *world {
	w := &world{
		setup: set, logger: logger, clusters: map[string]*memory.Cluster{}, stores: map[string]*coordinator.Memory{},
		never: make(chan struct{}), byName: map[string]*process{}, mute: map[string]time.Time{}, txns: map[transaction]*memory.Producer{},
		launched: map[string]int{}, processes: map[string][]*process{}, closed: map[string]bool{}, ended: map[string]bool{}, failed: map[string]bool{},
	}
	w.oracle = newOracle(w)
	for _, name := range clusterNames() {
		o := memory.Options{ID: name, ReplicationFactor: 2}
		switch set.Kind {
		case "own":
			o.Traits = &fetcher.Traits{
				Gaps: true, ControlBatches: true, LogAppendTime: true, ReadOnly: true, Truncation: fetcher.TruncateExact,
			}
		case "produce":
			o.Produce = true
		}
		c := memory.New(o)
		c.SetFault(func(op memory.Op) memory.Fault {
			if p := w.process(op.Client); p != nil {
				return p.fault(op)
			}
			return memory.Fault{}
		})
		w.clusters[name], w.stores[name] = c, coordinator.NewMemory()
	}
	if err := w.create("A"); err != nil {
		panic(err) // a new cluster refuses nothing
	}
	return w
}

func (w *world) create(at string) error {
	return w.clusters[at].CreateTopic(cluster.NewTopic{Name: topicName, Partitions: int32(w.setup.Partitions), ReplicationFactor: -1})
}

func (w *world) process(client string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byName[client]
}

// storeless reports whether a store refuses just now.
func (w *world) storeless(at string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.mute[at])
}

// current is the present process of a mirror, nil when none was ever started.
func (w *world) current(name string) *process {
	if ps := w.processes[name]; len(ps) > 0 {
		return ps[len(ps)-1]
	}
	return nil
}

// running are the mirrors that were ever started, sorted.
func (w *world) running() []string {
	var names []string
	for name := range w.processes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// records are those of a mirror in the store of its destination.
func (w *world) records(at, mirror string) map[cluster.Partition]coordinator.Record {
	out := map[cluster.Partition]coordinator.Record{}
	recs, err := w.stores[at].Load(context.Background(), mirror)
	if err != nil {
		panic(err) // a store in memory without a fault function answers
	}
	for _, r := range recs {
		out[r.Partition] = r
	}
	return out
}

// record is that of one partition of a mirror.
func (w *world) record(mirror string, p cluster.Partition) (coordinator.Record, bool) {
	r, ok := w.records(mirror[1:], mirror)[p]
	return r, ok
}

// partitions of the topic at a cluster; none when it is not there.
func (w *world) partitions(at string) (ps []cluster.Partition) {
	for n := int32(0); ; n++ {
		p := cluster.Partition{Topic: topicName, Partition: n}
		if _, err := w.clusters[at].State(p); err != nil {
			return ps
		}
		ps = append(ps, p)
	}
}

// heal ends all that troubles clusters and processes, and has every mirror run.
func (w *world) heal() error {
	for _, c := range w.clusters {
		for b := range int32(3) {
			c.StartBroker(b + 1)
		}
	}
	for at, c := range w.clusters {
		for _, p := range w.partitions(at) {
			c.Thaw(p)
			for b := range int32(3) {
				_ = c.Lag(p, b+1, false) // of the leader it is refused: it does not lag
			}
		}
	}
	w.mu.Lock()
	clear(w.mute)
	w.mu.Unlock()
	for _, name := range w.running() {
		for _, p := range w.processes[name] {
			p.heal()
		}
	}
	for round := range 2 { // what was on its way arrives, and second processes see who owns what
		time.Sleep(100 * time.Millisecond)
		if err := w.oneEach(round == 1); err != nil {
			return err
		}
	}
	return nil
}

// oneEach has one process of each mirror run. One that another has taken partitions
// from, the last thing that other did, is of no use any more.
func (w *world) oneEach(owner bool) error {
	for _, name := range w.running() {
		if p := w.current(name); !w.closed[name] && (p.isDead() || p.ended() || owner && p.bereft()) {
			if _, err := w.launch(name); err != nil {
				return err
			}
		}
		ps := w.processes[name]
		for _, old := range ps[:len(ps)-1] {
			if err := old.end(); err != nil {
				return err
			}
		}
		w.processes[name] = ps[len(ps)-1:]
	}
	return nil
}

// close ends everything.
func (w *world) close() error {
	var first error
	for _, name := range w.running() {
		for _, p := range w.processes[name] {
			if err := p.end(); err != nil && first == nil {
				first = fmt.Errorf("Run of %s: %w", p.name, err)
			}
		}
	}
	w.crashing.Wait()
	close(w.never)
	for _, c := range w.clusters {
		c.Close()
	}
	return first
}
