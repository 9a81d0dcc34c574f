package metalog_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var versions = []string{"4.4.0", "3.9.1"}

// openReal starts a reader of a real cluster. Controllers are named, or, for
// nil, asked of the brokers.
func openReal(t *testing.T, k *kafkatest.Cluster, controllers []string) *metalog.Reader {
	t.Helper()
	brokers := wire.NewClient(k.Bootstrap(), nil)
	t.Cleanup(brokers.Close)
	q, err := metalog.NewQuorum(metalog.QuorumConfig{Controllers: controllers, Brokers: brokers.Any})
	if err != nil {
		t.Fatal(err)
	}
	r := metalog.New(metalog.Config{Quorum: q, ClusterID: k.ClusterID()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func deleteTopic(t *testing.T, cl *kgo.Client, name string) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = &name
	req.Topics, req.TopicNames = append(req.Topics, one), []string{name}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
}

// compare holds the image against what clients are told of all topics, which
// comes a little later.
func compare(t *testing.T, cl *kgo.Client, image func() metalog.Image, partitions int) {
	t.Helper()
	kafkatest.Eventually(t, patience, func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = nil
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		return differ(resp, image(), partitions)
	})
}

func differ(resp *kmsg.MetadataResponse, image metalog.Image, partitions int) error {
	n := 0
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			n++
			got, ok := image.Partition(metalog.PartitionID{Topic: topic.TopicID, Partition: p.Partition})
			if !ok || got.Leader != p.Leader || got.LeaderEpoch != p.LeaderEpoch ||
				!slices.Equal(got.Replicas, p.Replicas) || !slices.Equal(got.ISR, p.ISR) {
				return fmt.Errorf("%s-%d: image has %+v, clients are told %+v", *topic.Topic, p.Partition, got, p)
			}
		}
	}
	if topics := len(slices.Collect(image.Topics())); n != partitions || topics != len(resp.Topics) {
		return fmt.Errorf("%d partitions of %d topics, image has %d topics, want %d partitions", n, len(resp.Topics), topics, partitions)
	}
	for _, b := range resp.Brokers {
		if got, ok := image.Broker(b.NodeID); !ok || got.Fenced || len(got.Listeners) != 2 || len(got.Directories) != 1 {
			return fmt.Errorf("broker %d: %+v", b.NodeID, got)
		}
	}
	return nil
}

// TestReal: three controllers, found through the brokers. Topics come and go, the
// active controller is killed, the next one followed; the image is what clients
// are told. Then the beginning of the log has been replaced by snapshots, and a
// second reader comes to the same image from one.
func TestReal(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // it waits for Kafka's cleaner
			k := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3, Config: smallLog(version)})
			log := openReal(t, k, nil)
			admin := k.Client(t)
			measure(t, k, log)
			active := activeNode(t, k)
			k.Kill(active)
			began := time.Now()
			waitFor(t, log, "the dead broker is fenced", func(i metalog.Image) bool {
				b, ok := i.Broker(int32(active))
				return ok && b.Fenced
			})
			t.Logf("fenced after %v", time.Since(began))
			k.CreateTopic(t, "after-kill", 1, 2, map[string]string{"retention.ms": "7"})
			deleteTopic(t, admin, "live-0")
			waitFor(t, log, "live after the kill", func(i metalog.Image) bool { return hasTopic("after-kill")(i) && !hasTopic("live-0")(i) })
			k.Restart(active)
			kafkatest.Eventually(t, patience, func(context.Context) error {
				for _, p := range log.Image().Partitions() {
					if len(p.ISR) < len(p.Replicas) {
						return fmt.Errorf("%+v is not in sync", p)
					}
				}
				return nil
			})
			compare(t, admin, log.Image, 19*3+1)
			kafkatest.Eventually(t, 3*time.Minute, func(context.Context) error {
				for n := range k.Nodes() {
					if _, err := os.Stat(filepath.Join(k.LogDir(n+1), "__cluster_metadata-0", "00000000000000000000.log")); err == nil {
						return fmt.Errorf("the log of node %d still begins at 0", n+1)
					}
				}
				return nil
			})
			second := waitFor(t, openReal(t, k, k.Controllers()), "from a snapshot", hasTopic("after-kill"))
			compare(t, admin, func() metalog.Image { return second }, 19*3+1)
			if set := second.Config(metalog.Resource{Kind: metalog.TopicResource, Name: "after-kill"}); set["retention.ms"] != "7" {
				t.Errorf("configuration %v", set)
			}
			for id, p := range log.Image().Partitions() {
				if got, _ := second.Partition(id); !cmp.Equal(p, got) {
					t.Errorf("%v: %s", id, cmp.Diff(p, got))
				}
			}
		})
	}
}

// smallLog makes snapshots often and removes what they replace; Kafka looks at
// that every minute.
func smallLog(version string) map[string]string {
	set := map[string]string{"metadata.log.max.record.bytes.between.snapshots": "3000", "metadata.max.retention.bytes": "10000",
		"metadata.max.idle.interval.ms": "100", "broker.session.timeout.ms": "4000", "internal.metadata.log.segment.bytes": "16384"}
	if version == "3.9.1" {
		set["metadata.log.segment.bytes"], set["metadata.log.segment.min.bytes"] = "16384", "1024"
	}
	return set
}

// measure prints how long it takes from an append at the controller to us.
func measure(t *testing.T, k *kafkatest.Cluster, log *metalog.Reader) {
	t.Helper()
	var took []time.Duration
	for n := range 20 {
		name := fmt.Sprint("live-", n)
		k.CreateTopic(t, name, 3, 3, nil)
		image := waitFor(t, log, name, hasTopic(name))
		took = append(took, log.Heard().Sub(image.Appended))
	}
	slices.Sort(took)
	t.Logf("append to image: p50 %v, worst of 20 %v", took[10], took[19])
	if took[10] > time.Second {
		t.Errorf("an append takes %v to us", took[10])
	}
}

// activeNode asks a broker which controller is active.
func activeNode(t *testing.T, k *kafkatest.Cluster) int {
	t.Helper()
	q, err := metalog.NewQuorum(metalog.QuorumConfig{Controllers: k.Controllers()})
	if err != nil {
		t.Fatal(err)
	}
	active, err := q.Active(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer active.Close()
	return int(active.ID)
}
