package kafkatest

import (
	"context"
	"os"
	"sync"
	"testing"
)

// shared holds the clusters that the tests of this process have in common.
// It is the one piece of process-wide state here: a package's tests have
// nothing else in common that could own a cluster.
var shared struct {
	sync.Mutex
	clusters map[string]*sharedCluster // by Options.key
}

type sharedCluster struct {
	once sync.Once
	dir  string
	core *core
	err  error
}

// Shared returns a cluster that all tests of the process with equal Options
// use, started by the first of them. Use names of your own for topics and
// groups, and leave its nodes running. It is ended by [Main], which TestMain
// must call.
func Shared(t testing.TB, o Options) *Cluster {
	t.Helper()
	long(t)
	full, err := o.withDefaults()
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
	shared.Lock()
	s := shared.clusters[full.key()]
	if s == nil {
		if shared.clusters == nil {
			shared.clusters = make(map[string]*sharedCluster)
		}
		s = &sharedCluster{}
		shared.clusters[full.key()] = s
	}
	shared.Unlock()
	s.once.Do(func() { s.start(full) })
	check(t, s.err)
	return &Cluster{core: s.core, t: t}
}

// start has no test's context: the cluster outlives the test that needs it first.
func (s *sharedCluster) start(o Options) {
	if s.dir, s.err = os.MkdirTemp("", "kafkatest-"); s.err == nil {
		s.core, s.err = startCore(context.Background(), o, s.dir)
	}
}

// closeShared ends all shared clusters; no test may run any more.
func closeShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, s := range shared.clusters {
		if s.core != nil {
			s.core.close()
		}
		os.RemoveAll(s.dir)
	}
	clear(shared.clusters)
}

// Suite runs a package's tests and then ends the shared clusters. It fits
// goleak.VerifyTestMain, which wants to look for goroutines after that.
type Suite struct{ M *testing.M }

// Run runs the tests and returns the exit code. In a process started by
// [SpawnChild] it runs the child's function instead.
func (s Suite) Run() int {
	if ran, code := runChild(); ran {
		return code
	}
	defer closeShared()
	return s.M.Run()
}

// Main is for TestMain: os.Exit(kafkatest.Main(m)), after any calls of [Child].
func Main(m *testing.M) int { return Suite{m}.Run() }
