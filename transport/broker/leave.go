package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
)

// LeaveConfig says which cluster is to be left, and by whom.
type LeaveConfig struct {
	// Membership is as the processes had it that are to be out of the cluster; Identities
	// and Overrides are theirs. Where those are lost, nil: the metadata log alone tells what
	// is ours then, and topics' own settings of what is overridden are not known.
	Membership Config
	Overrides  Overrides
	// Listeners, TLS and Server are those of a DestinationConfig. The real brokers have to
	// reach us, to copy from one another what they lack.
	Listeners []net.Listener
	TLS       []*tls.Config
	Server    ServerConfig
	// Brokers are the ids to be out of the cluster. While another process of the mirror is
	// alive only those may go that are replicas of nothing. Default: those in Identities.
	Brokers []int32
	// Force: also those that are alive. Their processes find that they are displaced, and
	// end, which takes Identities that they share.
	Force bool
	// Admin is asked for what any client can do.
	Admin Admin
	// Stop ends the mirror of topics: one that is on record stores positions so, and copies
	// committed offsets. What it leaves is handed back. Default: nil, all is.
	Stop func(ctx context.Context, d Running, topics []string) error
	// DryRun only looks.
	DryRun bool
	// Logger hears of what happens. Default: silent.
	Logger *slog.Logger
}

// Running is a Destination that runs, for a mirror that would run it.
type Running struct{ *Destination }

// Run waits for the end of ctx.
func (Running) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Left is what Leave has found, and done.
type Left struct {
	// Traces are those of the ids that the cluster or Identities know.
	Traces []Trace
	// Brokers are the ids that are to be out of the cluster, Out those that are.
	Brokers, Out []int32
	// Topics are ours, and are made ordinary ones. Of Guessed, which are among them, only
	// the metadata log says so. Others have a replica on us and are not ours: that goes.
	Topics, Guessed, Others []string
}

// The reasons why nothing is done.
var (
	// ErrAlive: a process is this broker now. End it.
	ErrAlive = errors.New("the broker is alive")
	// ErrWhich: it is not known which ids are ours.
	ErrWhich = errors.New("nothing says which brokers are ours")
	// ErrReal: the id may be a real broker's.
	ErrReal = errors.New("it may be a real broker")
)

// Leave makes topics ordinary ones whose processes are gone, and takes these out of the
// cluster: each in turn is a broker again, with the identity that it had, hands back what
// it led, as Destination.Leave does, and is unregistered. After an error, or a crash, the
// same call goes on. Where neither Identities nor Overrides are kept, a crash between the
// moment when a topic is writable and the end may leave transactions of the source open.
//
// The error is ErrAlive, ErrWhich or ErrReal, those of Membership.Run, or why something
// could not be handed back. Listeners are closed at the end.
func Leave(ctx context.Context, cfg LeaveConfig) (Left, error) {
	defer func() {
		for _, l := range cfg.Listeners {
			l.Close()
		}
	}()
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return Left{}, err
	}
	var left Left
	err := inside(ctx, cfg.Membership, func(ctx context.Context, m *Membership) error {
		l := &leaving{cfg: cfg, m: m}
		defer func() { left = l.left }()
		if err := l.look(ctx); err != nil || cfg.DryRun {
			return err
		}
		if err := l.dead(ctx); err != nil {
			return err
		}
		return l.run(ctx)
	})
	return left, err
}

func (c LeaveConfig) withDefaults() LeaveConfig {
	if c.Membership.Identities == nil {
		c.Membership.Identities = new(MemoryIdentities)
	}
	if c.Overrides == nil {
		c.Overrides = new(MemoryOverrides)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Membership.Logger == nil {
		c.Membership.Logger = c.Logger
	}
	c.Membership = c.Membership.withDefaults()
	return c
}

func (c LeaveConfig) validate() error {
	errs := []error{c.Membership.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Membership.Ours != nil {
		bad("Membership.Ours: must not be given")
	}
	if !c.DryRun && len(c.Listeners) != len(c.Membership.Listeners) {
		bad("Listeners: %d for the %d of Membership", len(c.Listeners), len(c.Membership.Listeners))
	}
	if !c.DryRun && c.Admin == nil {
		bad("Admin: is nil")
	}
	if len(c.TLS) > len(c.Listeners) {
		bad("TLS: %d for %d Listeners", len(c.TLS), len(c.Listeners))
	}
	for _, id := range c.Brokers {
		if id < c.Membership.IDs.First || c.Membership.IDs.Last < id {
			bad("Brokers: %d is none of IDs, %d to %d", id, c.Membership.IDs.First, c.Membership.IDs.Last)
		}
	}
	return errors.Join(errs...)
}

// leaving is one call of Leave.
type leaving struct {
	cfg  LeaveConfig
	m    *Membership // looks on
	left Left

	joined bool // we have been one of the brokers; our listeners are closed since
}

// look finds out what there is to be done.
func (l *leaving) look(ctx context.Context) error {
	all, err := l.cfg.Membership.Identities.All(ctx)
	if err != nil {
		return fmt.Errorf("loading identities: %w", err)
	}
	image, us := l.m.log.Image(), l.m.party()
	l.left.Traces = traces(image, l.cfg.Membership.IDs, all)
	if l.left.Brokers, err = l.which(); err != nil {
		return err
	}
	if staying, err := l.staying(); staying || err != nil {
		return err
	}
	stored, err := l.cfg.Overrides.Topics(ctx)
	if err != nil {
		return fmt.Errorf("which topics are ours: %w", err)
	}
	touched := touchedBy(image, l.left.Brokers)
	for _, name := range mirrorTopics(image, us, l.left.Brokers) {
		if !slices.Contains(stored, name) {
			l.left.Guessed = append(l.left.Guessed, name)
		}
	}
	l.left.Topics = append(stored, l.left.Guessed...)
	slices.Sort(l.left.Topics)
	l.left.Others = slices.DeleteFunc(touched, func(name string) bool { return slices.Contains(l.left.Topics, name) })
	return nil
}

// staying reports that another process of the mirror goes on: then what is ours stays, and
// only who is a replica of nothing may go.
func (l *leaving) staying() (bool, error) {
	named, alive := int32(-1), int32(-1)
	for _, t := range l.left.Traces {
		switch leaves := slices.Contains(l.left.Brokers, t.Broker); {
		case leaves && t.Replicas > 0:
			named = t.Broker
		case !leaves && t.Kept && t.Alive && !t.Ended:
			alive = t.Broker
		}
	}
	if alive >= 0 && named >= 0 {
		return true, fmt.Errorf("broker %d: %w, and mirrors what broker %d is a replica of: both have to leave", alive, ErrAlive, named)
	}
	return alive >= 0, nil
}

// which are the ids to be out of the cluster.
func (l *leaving) which() ([]int32, error) {
	var kept, known []int32
	for _, t := range l.left.Traces {
		known = append(known, t.Broker)
		if t.Kept {
			kept = append(kept, t.Broker)
		}
		if slices.Contains(l.cfg.Brokers, t.Broker) && !t.Kept && t.Behind > 0 && !l.cfg.Force {
			return nil, fmt.Errorf("broker %d: %w: it is a replica behind others in %d partitions, and no identity is kept of it", t.Broker, ErrReal, t.Behind)
		}
	}
	switch {
	case len(l.cfg.Brokers) > 0:
		return slices.Compact(slices.Sorted(slices.Values(l.cfg.Brokers))), nil
	case len(kept) == 0 && len(known) > 0:
		return nil, fmt.Errorf("%w: of %d to %d the cluster knows %v", ErrWhich, l.cfg.Membership.IDs.First, l.cfg.Membership.IDs.Last, known)
	}
	return kept, nil
}
