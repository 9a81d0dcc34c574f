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
	"strconv"
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
	Mirror                        string
	Source, Destination, Internal []string
	ClusterID                     string
	IDs                           broker.IDs
	Addresses                     []string // of the listeners INTERNAL and CLIENT
	Folder                        string   // of who we are
	Topics, Unclean               []string
}

// joinedChild mirrors in a process of its own.
func joinedChild(args []string) error {
	var j joined
	if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	source, err := kafka.New(kafka.Config{Bootstrap: j.Source})
	if err != nil {
		return err
	}
	destination, err := j.open(logger)
	if err != nil {
		return err
	}
	defer destination.close()
	state, err := statekafka.New(statekafka.Config{Bootstrap: j.Destination, Partitions: 3})
	if err != nil {
		return err
	}
	defer state.Close()
	m, err := mirror.New(j.Mirror, source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: j.Topics}, UncleanRecovery: j.Unclean, SyncInterval: time.Second, RetryMax: 2 * time.Second,
		Store: state, Logger: logger,
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

// member of a cluster that was opened, with what it holds on to.
type openMember struct {
	*broker.Destination
	close func()
}

func (j joined) open(logger *slog.Logger) (*openMember, error) {
	files, err := broker.OpenFiles(j.Folder)
	if err != nil {
		return nil, err
	}
	admin, err := kafka.New(kafka.Config{Bootstrap: j.Destination})
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	cfg := broker.DestinationConfig{
		Membership: broker.Config{
			Bootstrap: j.Internal, ClusterID: j.ClusterID, IDs: j.IDs, Identities: files.Identities(),
			HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		},
		Admin: admin, Overrides: files.Overrides(), Logger: logger,
	}
	for n, name := range []string{"INTERNAL", "CLIENT"} {
		l, err := net.Listen("tcp", j.Addresses[n])
		if err != nil {
			return nil, err
		}
		_, text, _ := net.SplitHostPort(j.Addresses[n])
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Membership.Listeners = append(cfg.Membership.Listeners, broker.Listener{Name: name, Host: "127.0.0.1", Port: uint16(port)})
	}
	d, err := broker.NewDestination(cfg)
	if err != nil {
		return nil, err
	}
	return &openMember{d, func() { admin.Close(); files.Close() }}, nil
}

// worker is a process that mirrors, over all its lives.
type worker struct {
	t       *testing.T
	joined  joined
	process *kafkatest.Process
	lives   []*kafkatest.Process
}

// newWorker is worker number n of a mirror, not started.
func newWorker(t *testing.T, n int, mirrorName string, src, dst *kafkatest.Cluster, topics, unclean []string) *worker {
	return &worker{t: t, joined: joined{
		Mirror: mirrorName, Source: src.Bootstrap(), Destination: dst.Bootstrap(), Internal: dst.Internal(), ClusterID: dst.ClusterID(),
		IDs: broker.IDs{First: 130, Last: 139}, Addresses: kafkatest.FreeAddrs(t, 2), Folder: t.TempDir(), Topics: topics, Unclean: unclean,
	}}
}

func (w *worker) start() {
	w.t.Helper()
	b, err := json.Marshal(w.joined)
	if err != nil {
		w.t.Fatal(err)
	}
	w.process = kafkatest.SpawnChild(w.t, "joined", string(b))
	w.lives = append(w.lives, w.process)
}

// said are the lines of all lives with a prefix.
func (w *worker) said(prefix string) (out []string) {
	for n, p := range w.lives {
		for _, line := range p.Lines() {
			if strings.HasPrefix(line, prefix) {
				out = append(out, fmt.Sprintf("life %d: %s", n+1, line))
			}
		}
	}
	return out
}

// leave has a worker that was ended leave its cluster.
func (w *worker) leave() {
	w.t.Helper()
	d, err := w.joined.open(slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer d.close()
	depart(w.t, d.Destination)
}
