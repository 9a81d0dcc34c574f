package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// dead waits until no process is one of the brokers: the cluster holds one that was killed
// for alive until its session has ended. Our own address cannot be another's.
func (l *leaving) dead(ctx context.Context) error {
	alive := func(i metalog.Image) (out []Trace) {
		for _, t := range l.left.Traces {
			b, ok := i.Broker(t.Broker)
			if slices.Contains(l.left.Brokers, t.Broker) && ok && !b.Fenced && !t.Ended && (!t.Kept || t.Name != l.cfg.Membership.Name) {
				out = append(out, t)
			}
		}
		return out
	}
	session := l.cfg.Membership.SessionTimeout
	if !l.cfg.Force {
		if some := alive(l.m.log.Image()); len(some) > 0 {
			l.cfg.Logger.Info("waiting for the session of a broker to end", "broker", some[0].Broker)
		}
		bounded, cancel := context.WithTimeout(ctx, session+session/2)
		defer cancel()
		_, _ = l.m.log.Wait(bounded, func(i metalog.Image) bool { return len(alive(i)) == 0 })
	}
	some := alive(l.m.log.Image())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(some) == 0:
		return nil
	case !l.cfg.Force:
		return fmt.Errorf("broker %d: %w: its process (%s) has to end before", some[0].Broker, ErrAlive, cmp.Or(some[0].Name, "of which nothing is known"))
	}
	for _, t := range some {
		if !t.Kept {
			return fmt.Errorf("broker %d: %w, and not even force ends a process of which no identity is kept", t.Broker, ErrAlive)
		}
	}
	return l.displace(ctx, some)
}

// displace has living processes end: they find another holder of their identities.
func (l *leaving) displace(ctx context.Context, some []Trace) error {
	for _, t := range some {
		if err := l.claim(ctx, t); err != nil {
			return err
		}
	}
	wait := time.NewTimer(l.cfg.Membership.SessionTimeout/3 + displacing)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// displacing is how long a process may take to end that has found itself displaced.
const displacing = 2 * time.Second

// claim makes the identity of a broker ours, so that we are it when we join.
func (l *leaving) claim(ctx context.Context, t Trace) error {
	identities := l.cfg.Membership.Identities
	all, err := identities.All(ctx)
	if err != nil {
		return fmt.Errorf("loading identities: %w", err)
	}
	var was *Kept
	for _, k := range all {
		if k.Broker == t.Broker {
			was = &k
		}
	}
	now := Kept{Identity: t.id, Name: l.cfg.Membership.Name}
	if was != nil && *was == now {
		return nil
	}
	ok, err := identities.Swap(ctx, was, &now)
	if err == nil && !ok {
		err = ErrAlive
	}
	if err != nil {
		return fmt.Errorf("claiming the identity of broker %d: %w", t.Broker, err)
	}
	return nil
}

// run has one after the other go.
func (l *leaving) run(ctx context.Context) error {
	for _, id := range order(l.m.log.Image(), l.left.Brokers) {
		var err error
		if image := l.m.log.Image(); len(placedOn(image, id)) > 0 || l.first(image, id) {
			err = l.become(ctx, id)
		} else {
			err = l.unregister(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
		l.left.Out = append(l.left.Out, id)
	}
	return nil
}

// first reports that a broker has to be it, although it is no replica: something is on
// record as ours still, and nobody else has looked after it.
func (l *leaving) first(image metalog.Image, id int32) bool {
	if len(l.left.Out) > 0 || len(l.left.Topics) == 0 {
		return false
	}
	return !slices.ContainsFunc(l.left.Brokers, func(other int32) bool { return other != id && len(placedOn(image, other)) > 0 })
}

// trace is what was found of a broker; of one that only its caller knows, a new identity.
func (l *leaving) trace(id int32) Trace {
	at := slices.IndexFunc(l.left.Traces, func(t Trace) bool { return t.Broker == id })
	t := Trace{Broker: id, id: Identity{Broker: id}}
	if at >= 0 {
		t = l.left.Traces[at]
	}
	fresh := newIdentity(id)
	t.id.Broker = id
	t.id.Incarnation, t.id.Directory = cmp.Or(t.id.Incarnation, fresh.Incarnation), cmp.Or(t.id.Directory, fresh.Directory)
	return t
}

// become is a broker again, as long as it takes to leave.
func (l *leaving) become(ctx context.Context, id int32) error {
	if l.joined {
		return errors.New("partitions are left on it; the same call again goes on")
	}
	l.joined = true
	guessed := make(map[string]Own)
	for _, topic := range l.left.Guessed {
		guessed[topic] = ownOf(nil)
	}
	if err := l.cfg.Overrides.Save(ctx, guessed); err != nil {
		return fmt.Errorf("storing which topics are ours: %w", err)
	}
	if err := l.claim(ctx, l.trace(id)); err != nil {
		return err
	}
	cfg := l.cfg.Membership
	cfg.only = &id
	d, err := NewDestination(DestinationConfig{
		Membership: cfg, Server: l.cfg.Server, Listeners: l.cfg.Listeners, TLS: l.cfg.TLS, Admin: l.cfg.Admin, Overrides: l.cfg.Overrides, Logger: l.cfg.Logger,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	work, end := context.WithCancel(ctx)
	defer end()
	go func() {
		defer end()
		ran <- d.Run(running)
	}()
	err = l.leave(work, d)
	stop()
	if over := <-ran; over != nil {
		return over
	}
	return err
}

func (l *leaving) leave(ctx context.Context, d *Destination) error {
	if err := d.m.WaitJoined(ctx); err != nil {
		return fmt.Errorf("joining the cluster: %w", err)
	}
	// Stopped topics stay ours until all is done, so that the next call finds them.
	d.own.hold()
	image := d.m.log.Image()
	there := slices.DeleteFunc(slices.Clone(l.left.Topics), func(name string) bool { _, ok := image.TopicNamed(name); return !ok })
	if l.cfg.Stop != nil && len(there) > 0 {
		if err := l.cfg.Stop(ctx, Running{d}, there); err != nil {
			return fmt.Errorf("stopping topics: %w", err)
		}
	}
	return d.Leave(ctx)
}

// unregister takes a broker out that is no replica of anything, and forgets it.
func (l *leaving) unregister(ctx context.Context, id int32) error {
	image := l.m.log.Image()
	if _, ok := image.Broker(id); ok && l.registered(id) {
		c := controller{quorum: l.m.quorum}
		defer c.drop()
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		resp, err := c.do(ctx, req)
		if err == nil {
			err = wire.CodeError(resp.(*kmsg.UnregisterBrokerResponse).ErrorCode)
		}
		if err != nil && !errors.Is(err, codeNotRegistered) {
			return fmt.Errorf("unregistering: %w", err)
		}
		if _, err := l.m.log.Wait(ctx, func(i metalog.Image) bool { _, ok := i.Broker(id); return !ok }); err != nil {
			return fmt.Errorf("unregistering: %w", err)
		}
	}
	all, err := l.cfg.Membership.Identities.All(ctx)
	for _, k := range all {
		if k.Broker == id && err == nil {
			_, err = l.cfg.Membership.Identities.Swap(ctx, &k, nil)
		}
	}
	if err != nil {
		return fmt.Errorf("forgetting its identity: %w", err)
	}
	return nil
}

// registered reports that the broker that the cluster knows is the one that was found.
func (l *leaving) registered(id int32) bool {
	return slices.ContainsFunc(l.left.Traces, func(t Trace) bool { return t.Broker == id && t.Registered })
}
