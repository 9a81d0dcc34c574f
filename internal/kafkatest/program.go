package kafkatest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// programsStarted numbers the files of programs.
var programsStarted atomic.Int64

// JavaProgram starts a program of Kafka's own that lives beside a test, until that ends:
// the class org.apache.kafka.tools.<class> out of [DefaultVersion], whatever the cluster
// is. It is given the cluster's addresses and the settings of a client, to which config
// adds.
func (c *Cluster) JavaProgram(ctx context.Context, t testing.TB, class string, config map[string]string, args ...string) *Process {
	t.Helper()
	r, libs, err := c.programs(ctx, DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(c.dir, fmt.Sprint(class, "-", programsStarted.Add(1)))
	settings := c.clientProperties()
	maps.Copy(settings, config)
	if err := os.WriteFile(name+".properties", settings.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--bootstrap-server", strings.Join(c.Bootstrap(), ","), r.consumerConfigFlag, name + ".properties"}, args...)
	return spawn(t, c.classOf(r, libs, name+".log", []string{"-Xmx256m"}, "org.apache.kafka.tools."+class, args...))
}

// UpgradeFeatures runs kafka-features, of [DefaultVersion], to its end: the cluster uses what a
// release can, as "4.4".
func (c *Cluster) UpgradeFeatures(ctx context.Context, t testing.TB, release string) {
	t.Helper()
	p := c.JavaProgram(ctx, t, "FeatureCommand", nil, "upgrade", "--release-version", release)
	if err := p.Wait(ctx); err != nil {
		t.Fatalf("kafka-features upgrade to %s: %v\n%s", release, err, strings.Join(p.Lines(), "\n"))
	}
}

// programs are the jars of a release, whose programs then log as they do beside their own
// brokers.
func (c *core) programs(ctx context.Context, version string) (release, string, error) {
	if version == c.options.Version {
		return c.release, c.libs, nil
	}
	r := releases[version]
	libs, err := jars(ctx, version)
	if err != nil {
		return r, "", err
	}
	return r, libs, os.WriteFile(filepath.Join(c.dir, r.logFile), []byte(r.logConfig), 0o644)
}

// Kcat starts kcat beside a test, until that ends. It is given where and how to connect.
// Without kcat the test is skipped, or fails if KAFKATEST_REQUIRED is set.
func (c *Cluster) Kcat(t testing.TB, args ...string) *Process {
	t.Helper()
	return spawn(t, exec.Command(kcat(t), append(c.kcatAccess(), args...)...))
}

func kcat(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		unavailable(t, fmt.Errorf("%w: kcat not found: %w", errUnavailable, err))
	}
	return path
}
