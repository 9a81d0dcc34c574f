package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/internal/kafkatest"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// joined is what a process needs to know to mirror as a broker of the destination.
type joined struct {
	Mirror, Name                  string // of the mirror, and of one of its processes
	Source, Destination, Internal []string
	ClusterID                     string
	IDs                           broker.IDs
	Addresses                     []string // of the listeners INTERNAL and CLIENT
	Topics, Unclean               []string
	Open                          bool // availability
}

// joinedChild mirrors in a process of its own, which stands by when another one has taken over.
func joinedChild(args []string) error {
	var j joined
	if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for {
		err := j.run(ctx)
		if !errors.Is(err, mirror.ErrSuperseded) {
			return err
		}
		fmt.Println("superseded:", err)
	}
}

func (j joined) run(ctx context.Context) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	source, err := kafka.New(kafka.Config{Bootstrap: j.Source})
	if err != nil {
		return err
	}
	defer source.Close()
	destination, err := j.open(logger)
	if err != nil {
		return err
	}
	defer destination.close()
	m, err := mirror.New(j.Mirror, source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: j.Topics}, UncleanRecovery: j.Unclean, SyncInterval: time.Second, RetryMax: 2 * time.Second,
		Store: destination.state, Logger: logger,
		Events: mirror.Events{
			State: func(e mirror.StateEvent) { fmt.Printf("state %v %s %s %v\n", e.Partition, e.From, e.To, e.Err) },
			Truncated: func(e mirror.TruncatedEvent) {
				fmt.Printf("truncated %v %d %d %s\n", e.Partition, e.Span.From, e.Span.To, e.Why)
			},
			Skipped: func(e mirror.SkippedEvent) { fmt.Printf("skipped %v %v\n", e.Partition, e.Span) },
		},
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// openMember is a member of a cluster, with what it holds on to.
type openMember struct {
	*broker.Destination
	state *statekafka.Store
	close func()
}

func (j joined) open(logger *slog.Logger) (*openMember, error) {
	admin, err := kafka.New(kafka.Config{Bootstrap: j.Destination})
	if err != nil {
		return nil, err
	}
	state, err := statekafka.New(statekafka.Config{Bootstrap: j.Destination, Partitions: 3})
	if err != nil {
		admin.Close()
		return nil, err
	}
	m := &openMember{state: state, close: func() { state.Close(); admin.Close() }}
	shared := broker.NewShared(state, j.Mirror)
	cfg := broker.DestinationConfig{
		Membership: broker.Config{
			Bootstrap: j.Internal, ClusterID: j.ClusterID, IDs: j.IDs, Identities: shared.Identities(), Name: j.Name,
			HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		},
		Workers: j.Mirror, Admin: admin, Overrides: shared.Overrides(), Logger: logger,
	}
	if j.Open {
		cfg.Availability = broker.Open
	}
	for n, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", j.Addresses[n])
		if err != nil {
			m.close()
			return nil, err
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, broker.Listener{Name: name, Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)})
	}
	if m.Destination, err = broker.NewDestination(cfg); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// mirroring is a process that mirrors, over all its lives.
type mirroring struct {
	t       *testing.T
	joined  joined
	process *kafkatest.Process
	lives   []*kafkatest.Process
}

// newMirroring is worker number n of a mirror, not started.
func newMirroring(t *testing.T, n int, mirrorName string, src, dst *kafkatest.Cluster, topics, unclean []string) *mirroring {
	return &mirroring{t: t, joined: joined{
		Mirror: mirrorName, Source: src.Bootstrap(), Destination: dst.Bootstrap(), Internal: dst.Internal(), ClusterID: dst.ClusterID(),
		Name: fmt.Sprint("worker-", n+1),
		IDs:  broker.IDs{First: 130, Last: 139}, Addresses: kafkatest.FreeAddrs(t, 2), Topics: topics, Unclean: unclean,
	}}
}

func (w *mirroring) start() {
	w.t.Helper()
	b, err := json.Marshal(w.joined)
	if err != nil {
		w.t.Fatal(err)
	}
	w.process = kafkatest.SpawnChild(w.t, "joined", string(b))
	w.lives = append(w.lives, w.process)
}

// said are the lines of all lives with a prefix.
func (w *mirroring) said(prefix string) (out []string) {
	for n, p := range w.lives {
		for _, line := range p.Lines() {
			if strings.HasPrefix(line, prefix) {
				out = append(out, fmt.Sprintf("life %d: %s", n+1, line))
			}
		}
	}
	return out
}

// id is its broker id, as it was last told; -1 before.
func (w *mirroring) id() int {
	id := -1
	for _, line := range w.process.Lines() {
		if _, rest, ok := strings.Cut(line, `msg="registered as a broker" broker=`); ok {
			fmt.Sscanf(rest, "%d", &id)
		}
	}
	return id
}

// leave has a worker that was ended leave its cluster.
func (w *mirroring) leave() {
	w.t.Helper()
	d, err := w.joined.open(slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer d.close()
	depart(w.t, d.Destination)
}
