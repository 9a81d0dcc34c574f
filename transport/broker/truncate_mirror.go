package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// Truncater cuts tails for a mirror whose destination is written as clients write
// (transport/kafka, Truncation Join). For each Truncate it becomes a broker of the cluster,
// as the function Truncate does, and is none in between. Methods are safe for
// concurrent use; one cut is made after the other.
type Truncater struct {
	cfg    TruncateConfig
	listen func() ([]net.Listener, error)
	turn   chan struct{} // taken by whoever is a broker
}

var _ fetcher.Truncater = (*Truncater)(nil)

// NewTruncater connects to nothing yet. The listeners are opened by listen for each cut, in
// the order of Membership.Listeners; nil is at their ports, on all addresses of this
// machine. Listeners and DryRun of cfg are not given, and Salvage is only handed what goes
// in addition to what the mirror asked for (see Truncate). The error lists every bad
// field.
func NewTruncater(cfg TruncateConfig, listen func() ([]net.Listener, error)) (*Truncater, error) {
	errs := []error{cfg.check()}
	if len(cfg.Listeners) > 0 || cfg.DryRun {
		errs = append(errs, errors.New("Listeners and DryRun: must not be given"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.mirrored = true
	t := &Truncater{cfg: cfg, listen: listen, turn: make(chan struct{}, 1)}
	if listen == nil {
		t.listen = func() ([]net.Listener, error) { return listenAt("", cfg.Membership.Listeners) }
	}
	return t, nil
}

// listenAt opens listeners of this machine at the ports that are registered.
func listenAt(host string, at []Listener) ([]net.Listener, error) {
	var all []net.Listener
	for _, l := range at {
		one, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(l.Port))))
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, fmt.Errorf("listener %q: %w", l.Name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Check finds out whether the cluster could be joined: the errors are those of
// Membership.Run. It changes nothing, unless an earlier process with the same Overrides has
// died with partitions in its hands: those are given back.
func (t *Truncater) Check(ctx context.Context) error {
	release, err := t.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := othersTopics(ctx, t.cfg.Overrides); err != nil {
		return err
	}
	if err := inside(ctx, t.cfg.Membership, func(context.Context, *Membership) error { return nil }); err != nil {
		return err
	}
	if over, err := t.cfg.over(ctx); over || err != nil {
		return err
	}
	cfg := t.cfg
	if cfg.Listeners, err = t.listen(); err != nil {
		return fmt.Errorf("becoming a broker to give back: %w", err)
	}
	return carryOut(ctx, cfg, nil)
}

// take waits until nobody else is a broker.
func (t *Truncater) take(ctx context.Context) (release func(), err error) {
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Truncate is fetcher.Truncater's. Each cut is made or refused by itself:
//
//   - a log that is longer than Cut.End is not cut. So nothing goes that was not seen
//     by whoever asked;
//   - no transaction is left open. One that begins before the cut and ends behind it goes as
//     a whole, and with it all that stands behind its beginning: the mirror copies that again.
//
// If it dies in between, real brokers lead when the session has ended, and the same call
// with the same Overrides goes on.
func (t *Truncater) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	errs := make([]error, len(cuts))
	release, err := t.take(ctx)
	if err != nil {
		return fill(errs, err)
	}
	defer release()
	cfg := t.cfg
	if err := checkCuts(cuts); err != nil {
		return fill(errs, err)
	}
	if cfg.Listeners, err = t.listen(); err != nil {
		return fill(errs, fmt.Errorf("%w: becoming a broker to cut: %w", cluster.ErrUnavailable, err))
	}
	defer func() {
		for _, l := range cfg.Listeners {
			l.Close()
		}
	}()
	plans, err := truncate(ctx, cfg, cuts)
	for i := range errs {
		errs[i] = err
	}
	for i, p := range plans {
		switch {
		case p.Err != nil:
			errs[i] = p.Err
		case p.done:
			errs[i] = nil // whatever came afterwards
		}
		t.cfg.Logger.Info("truncate", "topic", p.Partition.Topic, "partition", p.Partition.Partition, "from", p.At, "to", p.LogEnd,
			"earlier", p.Earlier, "took", p.Took, "leaderless", p.Leaderless, "error", errs[i])
	}
	return errs
}

const (
	// farthest is how many offsets before a tail are looked into for the beginning of a
	// transaction that is known to be there.
	farthest = 1 << 20
	stride   = 4
)

// before has a plan begin where no transaction is under way: each that is cut is cut as a
// whole. What goes in addition is saved with what was to go.
func (s *surveyor) before(ctx context.Context, p *cutPlan, t *tail, o opened) error {
	for len(o.producers) > 0 {
		var err error
		for reach := int64(lookBack); o.missed && reach < farthest && p.At-reach > p.LogStart; {
			reach *= stride
			if o, err = t.opened(ctx, max(p.LogStart, p.At-reach), p.At); err != nil {
				return err
			}
		}
		if o.missed && p.At-farthest > p.LogStart {
			return fmt.Errorf("%v: %w: transactions of producers %v end behind offset %d and begin more than %d before it: they would be open for ever",
				p.Partition, cluster.ErrRefused, o.producers, p.At, farthest)
		}
		if o.first >= p.At {
			break // their records are not there any more
		}
		s.cfg.Logger.Warn("more is cut, so that no transaction is left open", "topic", p.Partition.Topic, "partition", p.Partition.Partition,
			"offset", p.Offset, "from", o.first, "producers", o.producers)
		p.from, p.At = o.first, o.first
		t = s.tail(p)
		if err := t.save(ctx, nil); err != nil {
			return err
		}
		p.count, p.Batches, p.Bytes = t.found, t.found.batches, t.found.bytes
		if o, err = t.opened(ctx, max(p.LogStart, p.At-lookBack), p.At); err != nil {
			return err
		}
	}
	p.Opened = nil
	if p.At >= p.Offset || s.cfg.Salvage == nil {
		return nil
	}
	return s.tail(p).save(ctx, s.cfg.Salvage)
}
