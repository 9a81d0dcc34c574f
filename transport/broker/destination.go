package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// Admin is what a client of the cluster does; a Cluster of transport/kafka that points
// at the same cluster is one.
type Admin interface {
	topics.Sink
	topics.Settings
	offsets.Sink
	fetcher.Reader
	fetcher.Epochs
	Offsets(ctx context.Context, partitions []cluster.Partition) ([]fetcher.OffsetsAnswer, error)
	ID(ctx context.Context) (string, error)
}

// DestinationConfig says which cluster is mirrored to, and how.
type DestinationConfig struct {
	// Membership is which cluster, and who we are there. Ours is not given: the
	// destination knows what is its own.
	Membership Config
	// Server is what our listeners bear. Default: see ServerConfig.
	Server ServerConfig
	// Listeners accept at the addresses of Membership.Listeners, in their order. They
	// are closed when Run ends.
	Listeners []net.Listener
	// TLS is used by the listener of the same index. Default: nil, plain TCP.
	TLS []*tls.Config
	// Admin is asked for what any client can do.
	Admin Admin
	// Overrides keeps which topics are ours, and their own settings.
	Overrides Overrides
	// Workers names the processes that stand by for each other: of the same mirrors with the
	// same state, with Overrides that they share, with ids of one range and Identities or
	// Names of their own. One of them mirrors (Turn), and another one leads at once when it is
	// silent. Default: none, and when this process is dead nobody leads.
	Workers string
	// Silence is how long the one that leads may say nothing to the others. Default: 600 ms.
	Silence time.Duration
	// Availability is what clients have when no process of ours is alive. Default: Strict.
	Availability Availability
	// EpochBudget is how far our leader epoch is raised at a time so that the source's
	// can be kept in the log. A partition of which the source is further ahead has our
	// epoch in its batches instead. Every step is a record in the metadata log, three
	// requests take any number of them. Default: 100.
	EpochBudget int32
	// ProducerIDBudget is how many producer ids the cluster is made to pass over, so that
	// none that is mirrored is handed out later. Producers with ids that are further ahead
	// have others here (ProducersFrom), and their batches are not the source's byte for
	// byte. Every thousand are a record in the metadata log. Default: 1,000,000.
	ProducerIDBudget int64
	// Quorum is how many real replicas hold a record before it counts as written, at
	// most all of them; with fewer copying stands still. So few may be away when we begin
	// to lead that the others have some of any quorum. Default: the majority, which is
	// both of two.
	Quorum int
	// Window is how many bytes of each partition are kept in memory for real replicas
	// that are behind the quorum. Default: 1 MiB.
	Window int64
	// Logger hears of what happens to partitions. Default: silent.
	Logger *slog.Logger
}

// Validate reports every bad field at once.
func (c DestinationConfig) Validate() error {
	errs := []error{c.Membership.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Membership.Ours != nil {
		bad("Membership.Ours: must not be given")
	}
	if len(c.Listeners) != len(c.Membership.Listeners) {
		bad("Listeners: %d for the %d of Membership", len(c.Listeners), len(c.Membership.Listeners))
	}
	if len(c.TLS) > len(c.Listeners) {
		bad("TLS: %d for %d Listeners", len(c.TLS), len(c.Listeners))
	}
	if c.Admin == nil {
		bad("Admin: is nil")
	}
	if c.Overrides == nil {
		bad("Overrides: without a memory of what is ours nothing is found again after a restart")
	}
	if c.Availability > Open {
		bad("Availability: %d is neither Strict nor Open", c.Availability)
	}
	if c.EpochBudget < 0 || c.ProducerIDBudget < 0 || c.Quorum < 0 || c.Window < 0 || c.Silence < 0 {
		bad("EpochBudget, ProducerIDBudget, Quorum, Window and Silence must not be negative")
	}
	return errors.Join(errs...)
}

func (c DestinationConfig) withDefaults() DestinationConfig {
	c.EpochBudget = cmp.Or(c.EpochBudget, 100)
	c.ProducerIDBudget = cmp.Or(c.ProducerIDBudget, 1_000_000)
	c.Window = cmp.Or(c.Window, 1<<20)
	c.Silence = max(cmp.Or(c.Silence, 600*time.Millisecond), 60*time.Millisecond)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Membership.Logger = cmp.Or(c.Membership.Logger, c.Logger)
	c.Server.Logger = cmp.Or(c.Server.Logger, c.Logger)
	return c
}

// Destination mirrors to a cluster of which we are a broker: it leads the mirror
// topics, and their real replicas fetch from it what it is handed. What it appends is
// byte for byte the source's, the leader epochs included (or its own, see
// DestinationConfig.EpochBudget). Clients read mirror topics as always, and cannot
// write to them, also while we are dead. All methods are safe for concurrent use.
type Destination struct {
	cfg     DestinationConfig
	m       *Membership
	server  *Server
	control *control
	own     *ownTopics
	answers answers
	bounds  askers[cluster.Partition, bounds]
	writers askers[cluster.Partition, wrote]
	aborts  askers[openTransaction, error]
	scans   chan struct{} // taken by those that read logs of replicas
	guard   *guard
	wishes  *epochWishes
	peers   *peers
	refills refills
	turned  chan struct{} // closed when it is our turn
	fallen  *fallen
	missed  *missed
	lifts   *lifts

	mu   sync.Mutex
	seen metalog.Image // taken in last
	held map[cluster.Partition]*holding
	led  map[metalog.PartitionID]*holding // those that have a lead.Partition
}

var (
	_ fetcher.Log            = (*Destination)(nil)
	_ fetcher.Reader         = (*Destination)(nil)
	_ fetcher.Epochs         = (*Destination)(nil)
	_ fetcher.Starter        = (*Destination)(nil)
	_ fetcher.Fencer         = (*Destination)(nil)
	_ fetcher.EpochRaiser    = (*Destination)(nil)
	_ fetcher.Refiller       = (*Destination)(nil)
	_ fetcher.EpochStamper   = (*Destination)(nil)
	_ fetcher.Aborter        = (*Destination)(nil)
	_ fetcher.ProducerGuard  = (*Destination)(nil)
	_ fetcher.Loser          = (*Destination)(nil)
	_ fetcher.ProducerLifter = (*Destination)(nil)
	_ topics.Sink            = (*Destination)(nil)
	_ offsets.Sink           = (*Destination)(nil)
	_ offsets.ShareSink      = (*Destination)(nil)
)

// maxScans bounds the partitions whose logs are looked into at once.
const maxScans = 32

// NewDestination connects to nothing yet. The error lists every bad field.
func NewDestination(cfg DestinationConfig) (*Destination, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	d := &Destination{
		cfg: cfg, own: newOwnTopics(cfg.Overrides), scans: make(chan struct{}, maxScans), guard: newGuard(), wishes: newEpochWishes(),
		turned: make(chan struct{}), fallen: newFallen(), missed: newMissed(cfg.Overrides), lifts: newLifts(cfg.Overrides),
		held: make(map[cluster.Partition]*holding), led: make(map[metalog.PartitionID]*holding),
	}
	cfg.Membership = cfg.Membership.servedBy(cfg.Server, cfg.TLS)
	cfg.Membership.Ours = func(topic string, _ cluster.TopicID, _ int32) bool { return d.own.has(topic) }
	cfg.Membership.recall = d.recall
	m, err := New(cfg.Membership)
	if err != nil {
		return nil, err
	}
	if cfg.Server.Refill == nil {
		cfg.Server.Refill = d.refill
	}
	d.m, d.server, d.control = m, NewServer(m, cfg.Server), newControl(m, d.own)
	d.control.open = cfg.Availability == Open
	d.server.coming = d.coming
	if cfg.Workers != "" {
		d.peers = newPeers(m, cfg.Workers, cfg.Silence)
		d.server.worker = func() self { return self{d.m.Self().Broker, d.peers.group, d.hasTurn(), d.peers.secret} }
	}
	return d, nil
}

// Membership is our place in the cluster, to look at and to leave it.
func (d *Destination) Membership() *Membership { return d.m }

// tickEvery is how often what depends on time is looked at.
const tickEvery = 250 * time.Millisecond

// Run joins the cluster and leads what is ours until ctx ends, and returns nil then.
// What we lead stays ours: nobody can write to it until we are back, or a mirror was
// stopped. Errors are those of Membership.Run, of a listener, and of Overrides, and
// cluster.ErrSuperseded when another of our Workers has taken over. It may be called once.
func (d *Destination) Run(ctx context.Context) error {
	if err := errors.Join(d.own.recall(ctx), d.peers.share(ctx, d.cfg.Overrides)); err != nil {
		for _, l := range d.cfg.Listeners {
			l.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("which topics are ours: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	part := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
				return
			}
			cancel(nil)
		})
	}
	for n, l := range d.cfg.Listeners {
		var secure *tls.Config
		if n < len(d.cfg.TLS) {
			secure = d.cfg.TLS[n]
		}
		part(func(ctx context.Context) error { return d.server.Serve(ctx, d.m.cfg.Listeners[n].Name, l, secure) })
	}
	part(d.m.Run)
	running.Go(func() { d.warnOfTransactions(ctx) })
	part(d.keepStep)
	part(d.keepAhead)
	part(d.keepMissed)
	part(func(ctx context.Context) error { return d.wishes.run(ctx, d.control.raise) })
	if d.control.open {
		part(d.keepOpen)
	}
	if d.peers != nil {
		for _, run := range []func(context.Context) error{d.peers.run, d.standBy, d.keepOwn, d.keepPeers} {
			part(run)
		}
	}
	running.Wait()
	d.closeAll(fmt.Errorf("%w: the destination does not run any more", cluster.ErrUnavailable))
	d.answers.wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Traits say what the destination can do: all of it.
func (d *Destination) Traits() fetcher.Traits { return traits }

var traits = fetcher.Traits{
	Gaps: true, ControlBatches: true, LogAppendTime: true, KeepsEpochs: true, OldFormats: true, ReadOnly: true, Truncation: fetcher.TruncateExact,
}

// ID is the cluster's id.
func (d *Destination) ID(ctx context.Context) (string, error) { return d.cfg.Admin.ID(ctx) }

// Read returns whole batches from offset on, up to the high watermark. Real replicas,
// which give them, learn of it a moment later than we do.
func (d *Destination) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	for deadline := time.Now().Add(lagging); ; {
		b, err := d.readOnce(ctx, p, offset, maxBytes)
		if err != nil || len(b) > 0 || !time.Now().Before(deadline) {
			return b, err
		}
		if s, ok := d.state(p); !ok || offset >= s.HighWatermark {
			return b, nil
		}
		pause(ctx, stepLook)
	}
}

// readOnce asks a real replica of what we lead. A client would ask us, or, as long as brokers
// have not heard of our election, who led before, and may hang.
func (d *Destination) readOnce(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	if led, s, ok := d.leading(p); ok {
		topic, _ := led.ID()
		for _, replica := range holders(s, offset) {
			b, _, err := d.server.read(ctx, replica, lackingPiece{topic: topic, name: p, offset: offset, max: maxBytes})
			if err == nil {
				return whole(b, offset, s.HighWatermark), nil
			}
		}
	}
	return d.cfg.Admin.Read(ctx, p, offset, maxBytes)
}

// lagging is how long a replica may take to learn of the high watermark.
const lagging = 2 * time.Second

// Groups are the cluster's consumer groups.
func (d *Destination) Groups(ctx context.Context) ([]cluster.Group, error) {
	return d.cfg.Admin.Groups(ctx)
}

// Committed gives committed offsets of groups.
func (d *Destination) Committed(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	return d.cfg.Admin.Committed(ctx, groups)
}

// Commit writes offsets of a group without members.
func (d *Destination) Commit(ctx context.Context, group string, committed []cluster.Committed) error {
	return d.cfg.Admin.Commit(ctx, group, committed)
}

// ShareOffsets gives the start offsets of share groups, where the Admin can.
func (d *Destination) ShareOffsets(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	if s, can := d.cfg.Admin.(offsets.ShareSink); can {
		return s.ShareOffsets(ctx, groups)
	}
	return nil, fmt.Errorf("share groups: %w", errors.ErrUnsupported)
}

// SetShareOffsets sets the start offsets of a share group without members.
func (d *Destination) SetShareOffsets(ctx context.Context, group string, starts []cluster.Committed) error {
	if s, can := d.cfg.Admin.(offsets.ShareSink); can {
		return s.SetShareOffsets(ctx, group, starts)
	}
	return fmt.Errorf("share groups: %w", errors.ErrUnsupported)
}

// Offsets gives log start and high watermark: ours where we lead.
func (d *Destination) Offsets(ctx context.Context, partitions []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]fetcher.OffsetsAnswer, len(partitions))
	var ask []cluster.Partition
	var at []int
	for i, p := range partitions {
		if s, ok := d.state(p); ok {
			out[i].Offsets = cluster.Offsets{LogStart: s.LogStart, HighWatermark: s.HighWatermark}
			continue
		}
		ask, at = append(ask, p), append(at, i)
	}
	if len(ask) == 0 {
		return out, nil
	}
	answers, err := d.cfg.Admin.Offsets(ctx, ask)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		out[i] = answers[k]
	}
	return out, nil
}

// state is how a partition stands that we lead; false where we do not, or do not know
// yet.
func (d *Destination) state(p cluster.Partition) (lead.State, bool) {
	_, s, ok := d.leading(p)
	return s, ok
}

// leading is state with the partition itself.
func (d *Destination) leading(p cluster.Partition) (*lead.Partition, lead.State, bool) {
	led := d.server.led.byName(p)
	if led == nil {
		return nil, lead.State{}, false
	}
	s := led.State()
	return led, s, s.Phase == lead.Leading
}
