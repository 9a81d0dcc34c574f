package broker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
)

// retryMove is after how long a move is asked for again whose effect has not come.
const retryMove = 500 * time.Millisecond

// guarded is a stray that is being moved.
type guarded struct {
	stray
	asked time.Time // of the last move
	epoch int32     // partition epoch the last move was decided on
}

// guard watches the metadata log for strays and moves them away.
func (m *Membership) guard(ctx context.Context) error {
	g := &guardian{m: m, controller: controller{quorum: m.quorum}, open: make(map[metalog.PartitionID]*guarded)}
	defer g.controller.drop()
	for ctx.Err() == nil {
		g.turn(ctx)
	}
	return nil
}

// turn takes in what is new, and does what is due.
func (g *guardian) turn(ctx context.Context) {
	// Some may have to be asked for again, and who we are changes without a record.
	bounded, cancel := context.WithTimeout(ctx, retryMove/2)
	image, delta, err := g.m.log.Next(bounded, g.seen.Version)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if err == nil || g.changed() {
		g.look(ctx, image, delta)
	}
	g.work(ctx)
}

// guardian is what guard knows; only its goroutine uses it.
type guardian struct {
	m          *Membership
	controller controller
	seen       metalog.Image
	self       int32 // who we were at the last look
	leaving    bool
	unsure     bool // it could not be read what is ours
	open       map[metalog.PartitionID]*guarded
}

// changed reports that we are somebody else than at the last look, or leaving.
func (g *guardian) changed() bool {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.seen.Version > 0 && (g.unsure || g.m.self.Broker != g.self || g.m.leave != g.leaving)
}

// look takes in a new image. With another id, or when we leave, everything is
// looked at.
func (g *guardian) look(ctx context.Context, image metalog.Image, delta metalog.Delta) {
	g.m.mu.Lock()
	self, leaving := g.m.self.Broker, g.m.leave
	g.m.mu.Unlock()
	if self != g.self || leaving != g.leaving || g.seen.Version == 0 || g.unsure {
		delta = metalog.Delta{All: true}
	}
	before := g.seen
	g.seen, g.self, g.leaving = image, self, leaving
	if self < 0 {
		return
	}
	found := find(before, image, delta, self, g.m.party().own, g.ours)
	g.unsure = g.m.cfg.recall != nil && slices.ContainsFunc(slices.Collect(maps.Values(found)), func(s stray) bool { return !s.sure }) && g.m.cfg.recall(ctx) != nil
	for id, s := range found {
		if g.unsure && !s.sure && !strings.HasPrefix(topicName(image, id), "__") {
			continue // it may be ours, and somebody would write to it: looked at again
		}
		if !g.ours(id) && g.open[id] == nil {
			g.open[id] = &guarded{stray: s, epoch: -1}
			g.m.logger.Warn("a partition that is not ours was placed on us", "topic", topicName(image, id), "partition", id.Partition)
		}
	}
}

// ours reports that a partition is meant to be here.
func (g *guardian) ours(id metalog.PartitionID) bool {
	return !g.leaving && (g.m.ours(g.seen, id) || g.m.theirs(g.seen, id))
}

func topicName(i metalog.Image, id metalog.PartitionID) string {
	if t, ok := i.Topic(id.Topic); ok {
		return t.Name
	}
	return id.Topic.String()
}

// theirs reports that another broker of our range leads a partition: it is that one's affair
// whether it is a stray.
func (m *Membership) theirs(i metalog.Image, id metalog.PartitionID) bool {
	p, ok := i.Partition(id)
	us := m.party()
	return ok && p.Leader >= 0 && us.own(p.Leader) && p.Leader != us.Broker
}

// ours asks the host.
func (m *Membership) ours(i metalog.Image, id metalog.PartitionID) bool {
	if m.cfg.Ours == nil {
		return false
	}
	return m.cfg.Ours(topicName(i, id), id.Topic, id.Partition)
}

// work asks for the next move of every stray whose last one has had its effect,
// or should have had.
func (g *guardian) work(ctx context.Context) {
	now := time.Now()
	assign, admit := make(map[metalog.PartitionID][]int32), make(map[metalog.PartitionID][]int32)
	avoid := g.m.party().own
	for id, s := range g.open {
		if g.ours(id) { // we know it only now
			delete(g.open, id)
			continue
		}
		s.stay = !g.leaving
		step, done := s.step(g.seen, id, g.self, avoid)
		if done {
			g.m.logger.Info("a stray partition is off us", "topic", topicName(g.seen, id), "partition", id.Partition)
			delete(g.open, id)
			continue
		}
		p, _ := g.seen.Partition(id)
		if p.PartitionEpoch == s.epoch && now.Sub(s.asked) < retryMove {
			continue
		}
		switch {
		case step.callOff, step.replicas != nil:
			assign[id] = step.replicas
		case step.isr != nil:
			admit[id] = step.isr
		default:
			continue
		}
		s.asked, s.epoch = now, p.PartitionEpoch
	}
	for what, err := range map[string]error{"reassign": g.reassign(ctx, assign), "in-sync set": g.alter(ctx, admit)} {
		if err != nil && ctx.Err() == nil {
			g.m.logger.Warn("moving strays away", "request", what, "error", err)
			g.controller.drop()
		}
	}
}

func (g *guardian) reassign(ctx context.Context, set map[metalog.PartitionID][]int32) error {
	if len(set) == 0 {
		return nil
	}
	not, err := assign(ctx, &g.controller, g.seen, set)
	return errors.Join(err, not.join())
}

// alter changes in-sync sets as their leader.
func (g *guardian) alter(ctx context.Context, set map[metalog.PartitionID][]int32) error {
	self := g.m.Self()
	if len(set) == 0 || !self.Registered {
		return nil
	}
	not, err := inSync(ctx, &g.controller, g.seen, self, set)
	return errors.Join(err, not.join())
}
