package broker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestRealTruncateMany: 200 partitions in one call.
func TestRealTruncateMany(t *testing.T) {
	for _, version := range newest() {
		t.Run(version, func(t *testing.T) {
			c := startCutter(t, version)
			var cuts []fetcher.Cut
			cl := c.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for n := range 4 {
				topic := fmt.Sprint("many-", n)
				c.k.CreateTopic(t, topic, 50, 3, nil)
				for p := range int32(50) {
					cuts = append(cuts, fetcher.Cut{Partition: cluster.Partition{Topic: topic, Partition: p}, Offset: 5})
				}
			}
			for range 10 { // batches of one record
				var rs []*kgo.Record
				for _, cut := range cuts {
					rs = append(rs, &kgo.Record{Topic: cut.Partition.Topic, Partition: cut.Partition.Partition, Value: []byte("x")})
				}
				if err := cl.ProduceSync(within(t, time.Minute), rs...).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			out := c.truncate(t, nil, cuts...)
			took := time.Since(began)
			var longest, leaderless time.Duration
			for _, one := range out {
				if one.At != 5 || one.LogEnd != 10 || one.Batches != 5 {
					t.Errorf("%+v", one)
				}
				longest, leaderless = max(longest, one.Took), max(leaderless, one.Leaderless)
			}
			t.Logf("200 partitions in %v; the longest was ours for %v, and leaderless for %v", took, longest, leaderless)
			if took > 50*time.Second || longest > 5*time.Second || leaderless > 2500*time.Millisecond {
				t.Error("more than five times the bars: 10 s for all, 1 s and 0.5 s for each")
			}
			for _, cut := range []fetcher.Cut{cuts[0], cuts[77], cuts[199]} {
				if end := c.logs(t, cut.Partition).End(); end != 5 {
					t.Errorf("%v ends at %d", cut.Partition, end)
				}
			}
			c.clean(t, "many-0", "many-1", "many-2", "many-3")
		})
	}
}

// dies is what tells a child of TestRealTruncateKilled at which step to stand still.
const dies = "MIRROR_TRUNCATE_DIES"

// TestRealTruncateKilled: a process that is killed leaves partitions that real brokers
// lead, and the next call goes on.
func TestRealTruncateKilled(t *testing.T) {
	if step := os.Getenv(dies); step != "" {
		truncateUntil(t, step)
		return
	}
	c := startCutter(t, "4.4.0")
	for _, step := range []TruncateStep{TruncateLed, TruncateCut} {
		topic := "killed-" + strings.ReplaceAll(step.String(), " ", "-")
		p := cluster.Partition{Topic: topic}
		c.k.CreateTopic(t, topic, 1, 3, map[string]string{"min.insync.replicas": "2"})
		c.produceBatches(t, topic, 0, 10, "old")
		dir := t.TempDir()
		c.kill(t, dir, topic, step)
		began := time.Now()
		image, err := observe(t, c.k).Wait(within(t, time.Minute), func(i metalog.Image) bool {
			part, ok := i.Partition(partitionsOf(i, topic)[0])
			return ok && part.Leader >= 0 && part.Leader < 100
		})
		if err != nil {
			t.Fatal(err)
		}
		part, _ := image.Partition(partitionsOf(image, topic)[0])
		t.Logf("killed when it was %v: a real broker leads after %v: %+v", step, time.Since(began), part)
		c.produceBatches(t, topic, 0, 1, "new")
		files, err := OpenFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.overrides = files.Overrides()
		got := c.truncate(t, func(cfg *TruncateConfig) { cfg.Membership.Identities = files.Identities() }, fetcher.Cut{Partition: p, Offset: 55})[0]
		end, values := c.logs(t, p).End(), values(t, c.logs(t, p).Batches)
		switch step {
		case TruncateLed: // nothing was cut, what came later goes as well
			if got.Earlier || got.LogEnd != 110 || end != 50 || values["new-0"] {
				t.Errorf("killed before the cut: %+v, and the log ends at %d", got, end)
			}
		case TruncateCut: // what came later stays
			if !got.Earlier || end != 60 || !values["new-0"] || values["old-50"] {
				t.Errorf("killed after the cut: %+v, and the log ends at %d", got, end)
			}
		}
		c.clean(t, topic)
		files.Close()
	}
}

// kill has another process cut, and kills it at a step.
func (c *cutter) kill(t *testing.T, dir, topic string, step TruncateStep) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRealTruncateKilled$", "-test.v")
	child.Env = append(os.Environ(), dies+"="+step.String(), "DIR="+dir, "TOPIC="+topic, "BROKERS="+strings.Join(c.k.Internal(), ","), "CLUSTER="+c.k.ClusterID())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines, all := bufio.NewScanner(out), ""
	for lines.Scan() {
		if all += lines.Text() + "\n"; strings.Contains(lines.Text(), "standing still") {
			all = ""
			break
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if all != "" {
		t.Fatalf("the child did not come so far:\n%s", all)
	}
}

// truncateUntil is the child.
func truncateUntil(t *testing.T, step string) {
	files, err := OpenFiles(os.Getenv("DIR"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{overrides: files.Overrides()}
	cfg := c.listening(t)
	cfg.Membership.Bootstrap, cfg.Membership.ClusterID = strings.Split(os.Getenv("BROKERS"), ","), os.Getenv("CLUSTER")
	cfg.Membership.Identities = files.Identities()
	var once sync.Once
	cfg.Progress = func(_ cluster.Partition, at TruncateStep) {
		if at.String() == step {
			once.Do(func() { fmt.Println("standing still") })
			<-context.Background().Done()
		}
	}
	_, err = Truncate(t.Context(), cfg, []fetcher.Cut{{Partition: cluster.Partition{Topic: os.Getenv("TOPIC")}, Offset: 55}})
	t.Fatalf("it came to its end: %v", err)
}
