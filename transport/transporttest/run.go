// Package transporttest is the contract of a mirror's source and destination as a
// test suite that any implementation runs:
//
//	func TestContract(t *testing.T) {
//		transporttest.Run(t, transporttest.Options{Open: open})
//	}
//
// What a destination cannot do it says in its Traits, and the suite looks that it
// refuses cleanly: with an error that says so, and with nothing done. Abilities that
// are missing (fetcher.Starter, Fencer, EpochRaiser, ...) and hooks that are nil leave
// out what needs them; Run logs what was left out.
package transporttest

import (
	"context"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// Source is everything that a cluster to copy from has (mirror.Source).
type Source interface {
	fetcher.Source
	topics.Source
	offsets.Source
	ID(ctx context.Context) (string, error)
}

// Destination is everything that a cluster to copy to has (mirror.Destination).
type Destination interface {
	fetcher.Log
	fetcher.Reader
	topics.Sink
	offsets.Sink
	Offsets(ctx context.Context, partitions []cluster.Partition) ([]fetcher.OffsetsAnswer, error)
	ID(ctx context.Context) (string, error)
}

// End is one cluster and what a test needs of it. It may be shared by many tests:
// each makes topics and groups of its own.
type End struct {
	Source      Source      // nil: this is no source
	Destination Destination // nil: this is no destination

	// Another gives a further destination on the same cluster, as another process
	// would have: it knows nothing of the first. Nil: what two workers do to each other
	// is left out.
	Another func(t testing.TB) Destination
	// CreateTopic makes a topic with the default replication factor and returns when it
	// can be used. Nil: Destination.CreateTopics does it.
	CreateTopic func(t testing.TB, topic cluster.NewTopic)
	// Produce writes batches (format 2, base offset 0) to the end of a partition, as a
	// producer would, and returns when they can be read; or it returns why not. Source
	// needs it. With Destination nil and nil: writes of others are left out.
	Produce func(ctx context.Context, p cluster.Partition, batches ...[]byte) error
	// Elect makes another replica that is in sync the leader and returns when it leads.
	// Nil: what needs it is left out.
	Elect func(t testing.TB, p cluster.Partition)
	// Begin begins a transaction in a partition of the source, of a producer that has no
	// other. Nil: what needs it is left out.
	Begin func(t testing.TB, p cluster.Partition) Transaction
	// OldFetch: the source's brokers do not tell in a fetch where logs part (Kafka before
	// 2.7, fetch below version 12). What needs it is left out.
	OldFetch bool
	// Forgetful: the brokers of the destination forget producers whose records were all
	// deleted, which Kafka's do not. What needs that is left out.
	Forgetful bool
	// Unguarded: the destination does not look at the kind of the batches it is handed;
	// it relies on the engine, which hands over none that Traits exclude.
	Unguarded bool
	// Join gives a group a member until leave is called. Nil: groups with members are
	// left out.
	Join func(t testing.TB, group string) (leave func())
}

// Transaction is one of a source's producer, in one partition.
type Transaction interface {
	// Send writes so many batches of one record each, and returns when they can be read
	// by those who do not ask whether it is committed.
	Send(batches int)
	// End writes the marker and returns when readers of committed records are told.
	End(commit bool)
}

// Options of Run.
type Options struct {
	// Open gives the cluster for one test. What it takes is given back by t.Cleanup.
	Open func(t testing.TB) End
	// Timeout bounds one test. Default: 30 s.
	Timeout time.Duration
	// Parallel runs the tests side by side.
	Parallel bool
}

// check is one test of the suite. needs says what it cannot do without; empty: all
// is there.
type check struct {
	name  string
	needs func(End) string
	run   func(*kit)
}

// Run runs the suite.
func Run(t *testing.T, o Options) {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	probe := o.Open(t)
	for _, c := range checks() {
		if missing := c.needs(probe); missing != "" {
			t.Logf("%s is left out: no %s", c.name, missing)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if o.Parallel {
				t.Parallel()
			}
			c.run(newKit(t, o))
		})
	}
}

func checks() []check {
	var all []check
	for _, part := range [][]check{sourceChecks, sessionChecks, committedChecks, appendChecks, limitChecks, cutChecks, workerChecks, metaChecks} {
		all = append(all, part...)
	}
	return all
}

func needsSource(e End) string {
	switch {
	case e.Source == nil:
		return "source"
	case e.Produce == nil:
		return "Produce"
	}
	return ""
}

func needsDestination(e End) string {
	if e.Destination == nil {
		return "destination"
	}
	return ""
}

// with is what a destination and one thing more are needed for.
func with(what string, has func(End) bool) func(End) string {
	return func(e End) string {
		if missing := needsDestination(e); missing != "" {
			return missing
		}
		if !has(e) {
			return what
		}
		return ""
	}
}

func hasAnother(e End) bool { return e.Another != nil }
func hasElect(e End) bool   { return e.Elect != nil }
func hasProduce(e End) bool { return e.Produce != nil }

func hasFencer(e End) bool {
	_, ok := e.Destination.(fetcher.Fencer)
	return ok
}

func hasStarter(e End) bool {
	_, ok := e.Destination.(fetcher.Starter)
	return ok
}

func hasRaiser(e End) bool {
	_, ok := e.Destination.(fetcher.EpochRaiser)
	return ok
}

func cutsExactly(e End) bool { return e.Destination.Traits().Truncation == fetcher.TruncateExact }
