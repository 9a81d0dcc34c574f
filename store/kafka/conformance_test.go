package kafka

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/store/storetest"
	"github.com/twmb/franz-go/pkg/kfake"
)

var serial atomic.Int64

// unique makes a topic's name that no other test has.
func unique() string { return fmt.Sprint("state-", serial.Add(1)) }

// openAt makes a Store that is closed with the test.
func openAt(t testing.TB, bootstrap []string, topic string, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Bootstrap: bootstrap, Topic: topic, Partitions: 8, RequestTimeout: 20 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fake starts kfake.
func fake(t testing.TB, brokers int) *kfake.Cluster {
	t.Helper()
	f, err := kfake.NewCluster(kfake.NumBrokers(brokers))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// conform runs the whole suite in topics of one cluster.
func conform(t *testing.T, bootstrap []string) {
	place := func(t *testing.T) storetest.Open {
		topic := unique()
		return func(t *testing.T) storetest.Handle { return openAt(t, bootstrap, topic) }
	}
	for name, run := range map[string]func(t *testing.T){
		"one": func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Store { return openAt(t, bootstrap, unique()) })
		},
		"reopen": func(t *testing.T) { storetest.Reopen(t, place) },
		"second": func(t *testing.T) { storetest.Second(t, place) },
		"notes": func(t *testing.T) {
			storetest.Notes(t, func(t *testing.T) []coordinator.Notes {
				topic := unique()
				return []coordinator.Notes{openAt(t, bootstrap, topic), openAt(t, bootstrap, topic)}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

func TestFakeConformance(t *testing.T) {
	t.Parallel()
	conform(t, fake(t, 3).ListenAddrs())
}

var versions = []string{"4.4.0", "3.9.1"}

// onReal runs f against a real broker of each version, shared by all tests.
func onReal(t *testing.T, f func(t *testing.T, k *kafkatest.Cluster)) {
	for _, version := range versions {
		if testing.Short() && version != versions[0] {
			continue // a run that looks for races
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f(t, kafkatest.Shared(t, options(version)))
		})
	}
}

func options(version string) kafkatest.Options {
	return kafkatest.Options{Version: version, Config: map[string]string{"log.cleaner.backoff.ms": "200"}}
}

func TestRealConformance(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) { conform(t, k.Bootstrap()) })
}
