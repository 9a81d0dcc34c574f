package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Start starts a cluster, waits until every node knows all others, and ends it
// with the test. Jars come from a cache folder (KAFKATEST_CACHE, by default
// clustermirror-kafkatest in the user's cache folder), filled by Maven on
// first use. Releases before 3 get a ZooKeeper, which no fault touches: it ends
// with the cluster. Without Java or Maven, and with -short, the test is skipped;
// with KAFKATEST_REQUIRED set it fails without them, and runs with -short.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	long(t)
	c, err := startCore(t.Context(), o, t.TempDir())
	check(t, err)
	t.Cleanup(c.close)
	return &Cluster{core: c, t: t}
}

// long skips the test where short ones are wanted.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv("KAFKATEST_REQUIRED") == "" {
		t.Skip("real-Kafka test skipped: -short")
	}
}

// check skips or fails the test if the cluster could not be started.
func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errUnavailable):
		unavailable(t, err)
	default:
		t.Fatal(err)
	}
}

// unavailable skips the test, where that is permitted.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("KAFKATEST_REQUIRED") != "" {
		t.Fatalf("KAFKATEST_REQUIRED is set, but: %v", err)
	}
	t.Skipf("real-Kafka test skipped: %v", err)
}

// startCore starts a cluster in dir. ctx bounds only the start.
func startCore(ctx context.Context, o Options, dir string) (*core, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	java, err := java()
	if err != nil {
		return nil, err
	}
	libs, err := jars(ctx, o.Version)
	if err != nil {
		return nil, err
	}
	if err := archive(ctx, o.Version, java, libs); err != nil {
		return nil, err
	}
	return startIn(ctx, o, java, libs, dir)
}

// startIn starts a cluster with jars that are there.
func startIn(ctx context.Context, o Options, java, libs, dir string) (*core, error) {
	const attempts = 3
	for i := 1; ; i++ {
		sub := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return nil, err
		}
		c, err := newCore(o, java, libs, sub)
		if err != nil {
			return nil, err
		}
		err = c.start(ctx)
		if err == nil {
			return c, nil
		}
		c.close()
		// Only a port taken by somebody else gets better by trying again.
		if i == attempts || !strings.Contains(err.Error(), "Address already in use") {
			return nil, err
		}
	}
}

// start formats and starts all nodes at once and waits until they are ready.
func (c *core) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("cluster start timed out"))
	defer cancel()
	if c.zookeeper != nil {
		if err := c.zookeeper.start(ctx); err != nil {
			return err
		}
	}
	var g errgroup.Group
	if err := c.format(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		g.Go(func() error { return c.ready(ctx, n) })
	}
	if err := g.Wait(); err != nil || c.zookeeper == nil {
		return err
	}
	return c.learnID(ctx)
}
