package kafkatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOneNode: every release starts, holds records, and finds them again after
// kill -9.
func TestOneNode(t *testing.T) {
	t.Parallel()
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx := withTimeout(t, 4*time.Minute)
			c := Start(t, Options{Version: version, Config: map[string]string{"broker.session.timeout.ms": "3000"}})
			if got := c.Version(); got != version {
				t.Errorf("version %s", got)
			}
			c.CreateTopic(t, "a", 2, 1, map[string]string{"segment.bytes": "1048576"})
			c.Load(ctx, t, LoadSpec{Topic: "a", Partitions: 2, Records: 100})
			before := c.CPUSeconds()
			c.Kill(1)
			c.Restart(1)
			c.Load(ctx, t, LoadSpec{Topic: "a", Partitions: 2, First: 100, Records: 100, Idempotent: true})
			if got := c.Ends(ctx, t, "a"); !slices.Equal(got, []int64{100, 100}) {
				t.Errorf("ends %v", got)
			}
			if after := c.CPUSeconds(); before <= 0 || after <= before {
				t.Errorf("CPU seconds %g before kill -9, %g after", before, after)
			}
			if _, err := os.Stat(filepath.Join(c.LogDir(1), "a-1", "00000000000000000000.log")); err != nil {
				t.Error(err)
			}
			if c.release.zookeeper {
				oldFormats(t, c)
			}
		})
	}
}

// TestThreeNodes: with one of three killed the topic goes on, and the node
// comes back with what it missed.
func TestThreeNodes(t *testing.T) {
	ctx := withTimeout(t, 4*time.Minute)
	c := Start(t, Options{Nodes: 3, Config: map[string]string{"broker.session.timeout.ms": "3000"}})
	c.CreateTopic(t, "a", 3, 3, nil)
	c.Load(ctx, t, LoadSpec{Topic: "a", Partitions: 3, Records: 300, Idempotent: true})
	c.Kill(2)
	c.Load(ctx, t, LoadSpec{Topic: "a", Partitions: 3, First: 300, Records: 300, Idempotent: true})
	c.Restart(2)
	if got := c.Ends(ctx, t, "a"); !slices.Equal(got, []int64{200, 200, 200}) {
		t.Errorf("ends %v", got)
	}
	c.Pause(3)
	waitState(t, c.nodes[2].current().cmd.Process.Pid, "T")
	c.Continue(3)
	c.Stop(1)
	if c.nodes[0].running() {
		t.Error("node 1 runs after Stop")
	}
}

// TestUpgrade: a node goes on with the data of an older release, which is running until then.
func TestUpgrade(t *testing.T) {
	ctx := withTimeout(t, 4*time.Minute)
	c := Start(t, Options{Version: "3.9.1"})
	c.CreateTopic(t, "a", 1, 1, nil)
	c.Load(ctx, t, LoadSpec{Topic: "a", Partitions: 1, Records: 100})
	newest := func() (level int16) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "kafkatest", "1" // without, nobody answers
		resp, err := c.Client(t).SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range resp.(*kmsg.ApiVersionsResponse).SupportedFeatures {
			if f.Name == "metadata.version" {
				level = f.MaxVersion
			}
		}
		return level
	}
	before := newest()
	c.Upgrade(1, "4.4.0")
	if after := newest(); before != 21 || after != 33 {
		t.Errorf("metadata.version goes up to %d, and then to %d", before, after)
	}
	c.Load(ctx, t, LoadSpec{Topic: "a", Partitions: 1, First: 100, Records: 100})
	if got := c.Ends(ctx, t, "a"); !slices.Equal(got, []int64{200}) {
		t.Errorf("ends %v", got)
	}
}

func TestSharedIsOneCluster(t *testing.T) {
	a := Shared(t, Options{})
	b := Shared(t, Options{Version: DefaultVersion, Nodes: 1})
	if a.ClusterID() != b.ClusterID() {
		t.Error("two clusters for equal options")
	}
	if a.Addr(1) != a.Bootstrap()[0] {
		t.Errorf("address %s, bootstrap %v", a.Addr(1), a.Bootstrap())
	}
}

func TestSecurity(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{SASL: "PLAIN", TLS: true},
		{SASL: "SCRAM-SHA-512", User: "u", Password: "p"},
	} {
		t.Run(o.SASL, func(t *testing.T) {
			t.Parallel()
			ctx := withTimeout(t, 4*time.Minute)
			c := Start(t, o)
			c.CreateTopic(t, "a", 1, 1, nil)
			c.Load(ctx, t, LoadSpec{Topic: "a", Records: 10})
			if lines := c.KcatConsume(ctx, t, ConsumeSpec{Topic: "a"}); len(lines) != 10 {
				t.Errorf("kcat read %d records", len(lines))
			}
			if lines := c.JavaConsume(ctx, t, ConsumeSpec{Topic: "a"}); len(lines) != 10 {
				t.Errorf("java read %d records", len(lines))
			}
			if err := pingWithout(ctx, c); err == nil {
				t.Error("a client without credentials was let in")
			}
		})
	}
}

func pingWithout(ctx context.Context, c *Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...))
	if err != nil {
		return fmt.Errorf("a client: %w", err)
	}
	defer cl.Close()
	return cl.Ping(ctx)
}

// TestArchive: a node has the classes of its release from the archive, which was made
// when the first cluster of the release started.
func TestArchive(t *testing.T) {
	c := Shared(t, Options{})
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.nodes[0].current().cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if file := archiveOf(c.java, c.libs); !strings.Contains(string(maps), file) {
		t.Errorf("the node has not read %s", file)
	}
}
