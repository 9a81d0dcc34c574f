package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// joined is a destination that is a broker of its cluster.
type joined struct {
	*broker.Destination
	admin *kafka.Cluster
}

// join gives one that leads nothing and does not run yet.
func join(j job) (*joined, error) {
	admin, err := kafka.New(kafka.Config{Bootstrap: j.Destination})
	if err != nil {
		return nil, err
	}
	cfg := broker.DestinationConfig{
		Membership: broker.Config{
			Bootstrap: j.Internal, ClusterID: j.ClusterID, IDs: broker.IDs{First: 100, Last: 109}, Identities: new(broker.MemoryIdentities),
		},
		Admin: admin, Overrides: new(broker.MemoryOverrides),
	}
	for _, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners,
			broker.Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	d, err := broker.NewDestination(cfg)
	return &joined{d, admin}, err
}

// leave is for when nothing is mirrored any more. It ends Run.
func (d *joined) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return d.Membership().Leave(ctx)
}

// during joins the cluster for as long as do takes, and leaves it.
func (d *joined) during(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ran := make(chan error, 1)
	go func() {
		err := d.Run(ctx)
		cancel(cmp.Or(err, errEnded))
		ran <- err
	}()
	err := do(ctx)
	if err == nil {
		err = d.leave(ctx)
	}
	cancel(nil)
	return errors.Join(err, <-ran, d.admin.Close())
}

var errEnded = errors.New("the destination does not run any more")

// runJoined is runMirror with a destination that is a broker of its cluster.
func runJoined(ctx context.Context, j job) (took time.Duration, err error) {
	source, err := kafka.New(kafka.Config{Bootstrap: j.Source})
	if err != nil {
		return 0, err
	}
	d, err := join(j)
	if err != nil {
		return 0, err
	}
	took, err = mirrorTo(ctx, j, source, d.Destination, func(ctx context.Context, m *mirror.Mirror) error {
		return errors.Join(m.Stop(ctx), d.leave(ctx))
	})
	return took, errors.Join(err, d.admin.Close())
}

// followed is a source, and a destination of two brokers that have every partition.
func followed(t testing.TB) pair {
	t.Helper()
	return pair{clusters(t).source, kafkatest.Shared(t, kafkatest.Options{Nodes: 2, JVM: jvm(), Config: map[string]string{
		"default.replication.factor": "2", "log.segment.delete.delay.ms": "500",
	}})}
}

// TestJoined: a destination that is a broker beside one that produces, both to two
// replicas.
func TestJoined(t *testing.T) {
	p, times := followed(t), 1
	names := []string{"joined", "mirror"}
	if *full {
		times = 3
		p.warm(t, names...)
	}
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "data\tto\tCPU-s/GB wire\tof producing\tMB/s wire\tpeak MB\tdest CPU-s/GB\tothers\t")
	for _, s := range joinedSets(t) {
		r := row{set: s, wire: p.prepare(t.Context(), t, s), runs: map[string][]run{}}
		for range times {
			for _, name := range names {
				r.runs[name] = append(r.runs[name], p.measure(t.Context(), t, name, s, r.wire))
			}
		}
		ratio := r.cpu("joined") / r.cpu("mirror")
		for _, name := range names {
			of, to := "", "produced"
			if name == "joined" {
				of, to = fmt.Sprintf("%.2f", ratio), name
			}
			fmt.Fprintf(out, "%s\t%s\t%.2f\t%s\t%.0f\t%.0f\t%.2f\t%.0f%%\t\n", s.name, to, r.cpu(name), of,
				float64(r.wire)/1e6/r.median(name, func(u run) float64 { return u.Seconds }), r.median(name, func(u run) float64 { return float64(u.Peak) })/1e6,
				r.median(name, func(u run) float64 { return u.destination })/float64(r.wire)*1e9, 100*r.median(name, func(u run) float64 { return u.other }))
		}
		if ratio > shared {
			t.Errorf("%s: %.1f times the processor time of producing", s.name, ratio)
		}
	}
	out.Flush()
	t.Logf("two replicas\n%s", &table)
}

// joinedSets are those of sets; in the ordinary run a small one.
func joinedSets(t testing.TB) []set {
	t.Helper()
	if *full || *only != "" {
		return sets(t)
	}
	return []set{{name: "joined", codec: "none", batch: 256 << 10, value: 1000, megabytes: 64}}
}
