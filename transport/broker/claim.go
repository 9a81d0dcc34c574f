package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// ErrDisplaced: another process has our identity now. We have been taken for dead, or
// it was started under our name.
var ErrDisplaced = errors.New("another process has taken our place as a broker")

// newHolder names this life of a process.
func newHolder() string { return rand.Text() }

// others are the ids of ours that we may not have.
func (c Config) others() map[int32]bool {
	taken := make(map[int32]bool)
	for id := c.IDs.First; c.only != nil && id <= c.IDs.Last && id >= 0; id++ {
		taken[id] = id != *c.only
	}
	return taken
}

// identify chooses who we are and has it kept as ours.
func (s *session) identify(ctx context.Context) (next, error) {
	active, err := s.controller.connect(ctx)
	if err != nil {
		return seek, err
	}
	for _, voter := range active.Voters { // node ids are brokers' and controllers' alike
		s.taken[voter] = true
	}
	all, err := s.m.cfg.Identities.All(ctx)
	if err != nil {
		return unless(err), fmt.Errorf("loading identities: %w", err)
	}
	image, now, cfg := s.m.log.Image(), time.Now(), s.m.cfg
	s.silent.look(image, all, now)
	c := claimant{name: cfg.Name, holder: s.m.holder, ids: cfg.IDs, taken: s.taken, fenced: cfg.SessionTimeout / 3, gone: cfg.SessionTimeout}
	chosen, err := c.choose(image, all, func(k Kept) time.Duration { return now.Sub(s.silent[k]) })
	switch {
	case errors.Is(err, errWaiting):
		return nextID, err
	case err != nil:
		return giveUp, err
	}
	if chosen.was == nil || *chosen.was != chosen.now {
		ok, err := cfg.Identities.Swap(ctx, chosen.was, &chosen.now)
		if err != nil {
			return unless(err), fmt.Errorf("storing our identity: %w", err)
		}
		if !ok {
			return nextID, fmt.Errorf("broker %d: another process was faster", chosen.now.Broker)
		}
	}
	if chosen.was != nil && chosen.was.Holder != "" && chosen.was.Name != cfg.Name {
		s.m.logger.Warn("we go on in the place of a process that is dead", "broker", chosen.now.Broker, "name", chosen.was.Name)
	}
	s.id, s.identified, s.registered, s.answered = chosen.now.Identity, true, false, now
	s.m.become(func() {
		s.m.kept, s.m.id, s.m.self = chosen.now, chosen.now.Identity, Self{Broker: chosen.now.Broker, Epoch: -1, Fenced: true}
	})
	return goOn, nil
}

// unless gives up when trying again does not help.
func unless(err error) next {
	if errors.Is(err, cluster.ErrUnreachable) || passing(err) {
		return seek
	}
	return giveUp
}

// disown forgets the identity that we have: its id is somebody else's.
func (s *session) disown(ctx context.Context) {
	kept := s.m.keptNow()
	s.m.become(func() { s.m.kept = Kept{} })
	if _, err := s.m.cfg.Identities.Swap(ctx, &kept, nil); err != nil {
		s.m.logger.Warn("an identity that is of no use stays stored", "broker", kept.Broker, "error", err)
	}
}

func (m *Membership) keptNow() Kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept
}

// holds looks whether our identity is still ours: ErrDisplaced.
func (m *Membership) holds(ctx context.Context) error {
	kept := m.keptNow()
	all, err := m.cfg.Identities.All(ctx)
	if err != nil {
		return fmt.Errorf("loading identities: %w", err)
	}
	for _, k := range all {
		if k.Broker == kept.Broker && k.Holder == kept.Holder {
			return nil
		}
	}
	if m.keptNow() != kept || m.shutDown() { // we have become another one meanwhile, or are leaving
		return nil
	}
	return fmt.Errorf("broker %d: %w", kept.Broker, ErrDisplaced)
}

// watchClaim ends with ErrDisplaced when our identity is another process's. What cannot be
// looked up counts as unchanged: the store may be led by ourselves.
func (m *Membership) watchClaim(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.SessionTimeout / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if m.keptNow().Holder == "" {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, m.cfg.SessionTimeout/3)
		err := m.holds(bounded)
		cancel()
		if errors.Is(err, ErrDisplaced) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			m.logger.Warn("not known whether our identity is still ours", "error", err)
		}
	}
}

// releasing is how long giving an identity free may take at the end.
const releasing = 2 * time.Second

// release says that this process has ended, so that another one may go on at once.
func (m *Membership) release(ctx context.Context) {
	was := m.keptNow()
	if was.Holder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasing)
	defer cancel()
	now := was
	now.Holder = ""
	if _, err := m.cfg.Identities.Swap(ctx, &was, &now); err != nil {
		m.logger.Warn("our identity is not given free", "broker", was.Broker, "error", err)
	}
}
