package acceptance

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// cuttingAt is how a process becomes a broker of the cluster of sites, for a cut.
func cuttingAt(bootstrap []string, identities broker.Identities, overrides broker.Overrides) (broker.TruncateConfig, error) {
	cfg := broker.TruncateConfig{Overrides: overrides, Membership: broker.Config{
		Bootstrap: bootstrap, IDs: broker.IDs{First: 500, Last: 502}, Identities: identities,
		HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 4 * time.Second,
	}}
	for _, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return cfg, err
		}
		l.Close()
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, broker.Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	return cfg, nil
}

// cutBy has the tails of a cluster's logs cut by a process that becomes a broker of it.
func cutBy(t *testing.T, k *kafkatest.Cluster) func(*kafka.Config) {
	t.Helper()
	cfg, err := cuttingAt(k.Bootstrap(), new(broker.MemoryIdentities), new(broker.MemoryOverrides))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	cuts, err := broker.NewTruncater(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *kafka.Config) { c.Truncation, c.Truncater = kafka.Join, cuts }
}

// cutFrom is the same for a process that is to be killed. It tells how far cuts are.
func cutFrom(bootstrap []string, folder string) (*broker.Truncater, error) {
	files, err := broker.OpenFiles(folder)
	if err != nil {
		return nil, err
	}
	cfg, err := cuttingAt(bootstrap, files.Identities(), files.Overrides())
	if err != nil {
		return nil, err
	}
	cfg.Progress = func(p cluster.Partition, step broker.TruncateStep) { fmt.Printf("step %v %v\n", p, step) }
	return broker.NewTruncater(cfg, nil)
}

// TestFailbackKilledInCut: the process is killed when the replicas have cut, and (in the long
// form) when it leads what it is about to cut. The next one goes on: the logs are equal, the tail is saved, the
// topic is the one that it was, and no broker of ours is left in it.
func TestFailbackKilledInCut(t *testing.T) {
	a, b := sites(t)
	for _, step := range sized([]broker.TruncateStep{broker.TruncateCut}, []broker.TruncateStep{broker.TruncateLed, broker.TruncateCut}) {
		topic := "killed-cut-" + strings.ReplaceAll(step.String(), " ", "-")
		name := topic + "-ba"
		a.CreateTopic(t, topic, 2, 3, map[string]string{"min.insync.replicas": "1"})
		note(t, a, topic, "before", 300, 0, 1)
		planned(t, topic+"-ab", a, b, topic)
		tail := note(t, a, topic, "lost", 50, 1)[1]
		note(t, b, topic, "after", 100, 0, 1)
		was, dir := shaped(t, a, topic), t.TempDir()
		folder := t.TempDir()
		start := func() *kafkatest.Process {
			return kafkatest.SpawnChild(t, "homeward", name, strings.Join(b.Bootstrap(), ","), strings.Join(a.Bootstrap(), ","), topic, "kafka", dir, folder)
		}
		one := start()
		one.WaitLine(timeout(t, time.Minute), fmt.Sprintf("step %s-1 %v", topic, step))
		one.Kill()
		two := start()
		upTo(t, time.Minute, b, a, topic)
		sameRecords(t, "the tail that was saved", tail, salvaged(t, dir, name, cluster.Partition{Topic: topic, Partition: 1}, tail[0].Offset))
		if now := shaped(t, a, topic); now != was {
			t.Errorf("topic is %v, was %v", now, was)
		}
		cl := a.Client(t)
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			led, err := leadersNow(ctx, cl, topic)
			if err == nil && slices.Max(led) > 3 {
				err = fmt.Errorf("leaders are %v", led)
			}
			return err
		})
		two.Kill()
	}
}
