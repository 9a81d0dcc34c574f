package kafka

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// counting counts the requests that a fake cluster gets.
func counting(f *kfake.Cluster) (n *atomic.Int64) {
	n = new(atomic.Int64)
	f.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return n
}

// furnish has a fake cluster tell of topics of ten partitions, and counts how often it does.
func furnish(f *kfake.Cluster, partitions int) (n *atomic.Int64) {
	n = new(atomic.Int64)
	var all []kmsg.MetadataResponseTopic
	for i := range partitions / 10 {
		name := fmt.Sprintf("orders-%06d", i)
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = &name, [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}
		for k := range int32(10) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.Replicas, p.ISR = k, k%3, []int32{0, 1, 2}, []int32{0, 1, 2}
			t.Partitions = append(t.Partitions, p)
		}
		all = append(all, t)
	}
	f.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		n.Add(1)
		resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
		id := "fake"
		resp.ClusterID = &id
		for i, addr := range f.ListenAddrs() {
			b, at := kmsg.NewMetadataResponseBroker(), netip.MustParseAddrPort(addr)
			b.NodeID, b.Host, b.Port = int32(i), at.Addr().String(), int32(at.Port())
			resp.Brokers = append(resp.Brokers, b)
		}
		if kreq.(*kmsg.MetadataRequest).Topics == nil {
			resp.Topics = all
		}
		return resp, nil, true
	})
	return n
}

// BenchmarkDiscovery reads the topics of two clusters and compares them. What the brokers do to answer
// is in it, in this process.
func BenchmarkDiscovery(b *testing.B) {
	for _, partitions := range []int{10_000, 30_000, 100_000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			var ends [2]*Cluster
			var asked [2]*atomic.Int64
			for i := range ends {
				f := fake(b, 3, "t", 1)
				ends[i], asked[i] = open(b, f.ListenAddrs()), furnish(f, partitions)
			}
			filter, err := topics.NewFilter([]string{"orders-.*"}, []string{".*-tmp"})
			if err != nil {
				b.Fatal(err)
			}
			round := func() {
				source, err := ends[0].Topics(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				destination, err := ends[1].Topics(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if plan := topics.Diff(source, destination, filter); len(plan.Ready) != partitions/10 {
					b.Fatal(len(plan.Ready))
				}
			}
			round() // it connects
			before := asked[0].Load() + asked[1].Load()
			b.ReportAllocs()
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(asked[0].Load()+asked[1].Load()-before)/float64(b.N), "requests/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*partitions), "ns/partition")
		})
	}
}

// further is a source whose groups stand further by so much.
type further struct {
	*Cluster
	by int64
}

func (f *further) Committed(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	answers, err := f.Cluster.Committed(ctx, groups)
	for _, a := range answers {
		for i := range a.Offsets {
			a.Offsets[i].Offset += f.by
		}
	}
	return answers, err
}

// BenchmarkGroups is a round over groups that have committed in ten partitions each, when none has moved and when all
// have. What the brokers do is in it.
func BenchmarkGroups(b *testing.B) {
	for _, groups := range []int{500, 1_500, 5_000} {
		source, destination := fake(b, 3, "t", 10), fake(b, 3, "t", 10)
		from, to := &further{Cluster: open(b, source.ListenAddrs())}, open(b, destination.ListenAddrs())
		commitAll(b, from.Cluster, groups)
		filter, err := offsets.NewFilter([]string{"app-.*"}, nil)
		if err != nil {
			b.Fatal(err)
		}
		logs := map[cluster.Partition]offsets.Log{}
		for i := range int32(10) {
			logs[cluster.Partition{Topic: "t", Partition: i}] = offsets.Log{Offsets: cluster.Offsets{HighWatermark: 1 << 40}}
		}
		c := offsets.Copier{Source: from, Destination: to, Filter: filter, Ledger: offsets.NewLedger(nil, "")}
		c.Logs = func(context.Context, []cluster.Partition) (map[cluster.Partition]offsets.Log, error) {
			return logs, nil
		}
		if _, err := c.Copy(b.Context()); err != nil {
			b.Fatal(err)
		}
		asked := [2]*atomic.Int64{counting(source), counting(destination)}
		for _, moved := range []int{0, groups} {
			b.Run(fmt.Sprintf("groups=%d/moved=%d", groups, moved), func(b *testing.B) {
				before := asked[0].Load() + asked[1].Load()
				b.ReportAllocs()
				for b.Loop() {
					if moved > 0 {
						from.by++
					}
					r, err := c.Copy(b.Context())
					if err != nil || r.Matched != groups || r.Groups != moved || len(r.Failed) > 0 {
						b.Fatal(err, r.Matched, r.Groups, len(r.Failed))
					}
				}
				b.ReportMetric(float64(asked[0].Load()+asked[1].Load()-before)/float64(b.N), "requests/op")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*groups*10), "ns/offset")
			})
		}
	}
}

// commitAll has groups commit in the ten partitions of t.
func commitAll(b *testing.B, c *Cluster, groups int) {
	b.Helper()
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for g := w; g < groups; g += 16 {
				var all []cluster.Committed
				for i := range int32(10) {
					all = append(all, cluster.Committed{Partition: cluster.Partition{Topic: "t", Partition: i}, Offset: 100})
				}
				if err := c.Commit(b.Context(), fmt.Sprintf("app-%05d", g), all); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
