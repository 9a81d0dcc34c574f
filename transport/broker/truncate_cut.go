package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

// nobody is the Admin of a Destination that is not asked what a client does.
type nobody struct{ Admin }

// carryOut cuts what was looked at: as a broker, for as long as it takes.
func carryOut(ctx context.Context, cfg TruncateConfig, plans []*cutPlan) error {
	d, err := NewDestination(DestinationConfig{
		Membership: cfg.Membership, Server: cfg.Server, Listeners: cfg.Listeners, TLS: cfg.TLS, Admin: nobody{},
		Overrides: cfg.Overrides, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	d.server.lent = true
	// Neither the end of ctx nor an error of ours ends the membership before all is given back.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	alive, dead := context.WithCancel(running)
	work, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(alive, end)()
	var ran error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer dead()
		ran = d.Run(running)
	}()
	c := &cutting{cfg: cfg, d: d, plans: plans, alive: alive, at: make(map[metalog.PartitionID]*moments), cut: make(map[metalog.PartitionID]bool)}
	err = c.run(work)
	stop()
	<-done
	if ran != nil {
		return ran
	}
	return err
}

// cutting is one call of Truncate while we are a broker.
type cutting struct {
	cfg   TruncateConfig
	d     *Destination
	plans []*cutPlan
	alive context.Context              // as long as we are a broker, whatever the caller wants
	cut   map[metalog.PartitionID]bool // the replicas were told
	at    map[metalog.PartitionID]*moments
}

// moments of a partition: a replica of ours, led by us, led by a real broker, none of ours.
type moments struct{ joined, led, back, gone time.Time }

func (c *cutting) run(ctx context.Context) error {
	if err := c.d.m.WaitJoined(ctx); err != nil {
		return errors.Join(fmt.Errorf("joining the cluster: %w", err), c.leave())
	}
	watching, stop := context.WithCancel(c.alive)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.watch(watching)
	}()
	c.work(ctx)
	c.giveBack()
	stop()
	<-done
	c.see(c.d.m.log.Image())
	for _, p := range c.plans {
		if m := c.at[p.id]; m != nil && !m.gone.IsZero() {
			p.Leaderless, p.Took = m.back.Sub(m.led), m.gone.Sub(m.joined)
		}
	}
	return c.leave()
}

// leave is tried also when the caller has given up.
func (c *cutting) leave() error {
	ctx, cancel := context.WithTimeout(c.alive, undoing)
	defer cancel()
	if err := c.d.m.Leave(ctx); err != nil {
		return fmt.Errorf("we are still a broker of the cluster; the same call again goes on: %w", err)
	}
	return nil
}

// watch notes when what happens to partitions that are cut.
func (c *cutting) watch(ctx context.Context) {
	for version := uint64(0); ; {
		image, _, err := c.d.m.log.Next(ctx, version)
		if err != nil {
			return
		}
		version = image.Version
		c.see(image)
	}
}

func (c *cutting) see(image metalog.Image) {
	us, now := c.d.m.party(), time.Now()
	for _, p := range c.plans {
		part, ok := image.Partition(p.id)
		if !ok {
			continue
		}
		if c.at[p.id] == nil {
			c.at[p.id] = new(moments)
		}
		c.at[p.id].see(us, part, now)
	}
}

func (m *moments) see(us party, p *metalog.Partition, now time.Time) {
	first := func(t *time.Time, is bool) {
		if is && t.IsZero() {
			*t = now
		}
	}
	ours := slices.Contains(p.Replicas, us.Broker)
	first(&m.joined, ours)
	first(&m.led, p.Leader == us.Broker)
	first(&m.back, !m.led.IsZero() && p.Leader >= 0 && us.real(p.Leader))
	first(&m.gone, !m.back.IsZero() && !ours)
}

// left are the plans that have come through so far and have something to be cut.
func left(of []*cutPlan) (ps []*cutPlan) {
	return slices.DeleteFunc(slices.Clone(of), func(p *cutPlan) bool { return p.Err != nil || p.Nothing() })
}

func idsOf(ps []*cutPlan) (ids []metalog.PartitionID) {
	for _, p := range ps {
		ids = append(ids, p.id)
	}
	return ids
}

// fail notes the reasons of partitions.
func (c *cutting) fail(why map[metalog.PartitionID]error) {
	for _, p := range c.plans {
		if err := why[p.id]; err != nil && p.Err == nil {
			p.Err = err
		}
	}
}

// maxCut is how many partitions are in our hands at once: each of them waits for all.
const maxCut = 50

// work takes over, cuts and gives back.
func (c *cutting) work(ctx context.Context) {
	for group := range slices.Chunk(left(c.plans), maxCut) {
		if ctx.Err() != nil {
			failPlans(group, ctx.Err())
			continue
		}
		c.group(ctx, group)
		returning, cancel := context.WithTimeout(c.alive, undoing)
		c.returned(group, c.d.control.stepBack(returning, idsOf(group), c.whole))
		cancel()
	}
}

// group takes partitions over and cuts them.
func (c *cutting) group(ctx context.Context, group []*cutPlan) {
	if err := writeNotes(ctx, c.d.own, group, func(*cutPlan) int32 { return math.MaxInt32 }); err != nil {
		failPlans(group, err)
		return
	}
	expected := c.expect(group)
	c.fail(c.d.control.adoptSome(ctx, idsOf(group)))
	c.lead(group, expected)
	ps := left(group)
	hs := make([]*holding, len(ps))
	for i, p := range ps {
		hs[i] = c.d.holding(p.Partition)
	}
	for i, err := range c.d.ready(ctx, hs) {
		if ps[i].Err = err; err == nil {
			c.cfg.tell(ps[i].Partition, TruncateLed)
		}
	}
	each(left(ps), func(p *cutPlan) { p.Err = c.prepare(ctx, p) })
	ps = left(ps)
	err := ctx.Err()
	if err == nil {
		err = writeNotes(ctx, c.d.own, ps, c.epoch)
	}
	if err != nil {
		failPlans(ps, err)
		return
	}
	c.truncate(ctx, ps)
}

func failPlans(ps []*cutPlan, err error) {
	for _, p := range ps {
		p.Err = fmt.Errorf("%v: %w", p.Partition, err)
	}
}

// errNotElected: a real broker leads.
var errNotElected = errors.New("we were not elected")

// epoch is ours of a partition; nothing is later when we do not lead it any more.
func (c *cutting) epoch(p *cutPlan) int32 {
	led, err := c.d.holding(p.Partition).lead()
	if err != nil {
		return math.MaxInt32
	}
	return led.Epoch()
}

// errChanged: nobody can write, so that it does not change again.
var errChanged = errors.New("the log is not what was looked at before")

// prepare looks again, now that nobody can write, and saves what has come since.
func (c *cutting) prepare(ctx context.Context, p *cutPlan) error {
	led, err := c.d.holding(p.Partition).lead()
	if err != nil {
		return err
	}
	s := led.State()
	p.LogEnd = s.Next
	if err := p.grown(); err != nil {
		return err
	}
	if p.Nothing() {
		p.At = s.Next
		return nil
	}
	if s.Epoch != p.epoch+1 { // somebody has led between the one that was asked and us
		at, err := c.d.baseOf(ctx, led, fetcher.Cut{Partition: p.Partition, Offset: p.from})
		if err != nil {
			return err
		}
		if at = max(at, p.LogStart); at != p.At {
			return fmt.Errorf("%v: %w: offset %d lies in a batch from %d on, which was %d", p.Partition, errChanged, p.from, at, p.At)
		}
	}
	if s.Next <= p.read {
		return nil
	}
	longest := slices.MaxFunc(s.Followers, func(a, b lead.Follower) int { return cmp.Compare(a.Holds, b.Holds) })
	t := &tail{m: c.d.m, name: p.Partition, id: p.id, replica: longest.Replica, span: cluster.Span{From: p.read, To: s.Next}, found: p.count}
	if err := t.save(ctx, c.cfg.Salvage); err != nil {
		return err
	}
	p.Batches, p.Bytes = t.found.batches, t.found.bytes
	o, err := t.opened(ctx, max(p.LogStart, p.At-lookBack), p.At)
	p.Opened = o.producers
	return err
}

// truncate has all replicas cut, and waits until they have.
func (c *cutting) truncate(ctx context.Context, ps []*cutPlan) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	waits, errs := make([]<-chan error, len(ps)), make([]error, len(ps))
	leds := make([]*lead.Partition, len(ps))
	for i, p := range ps {
		if leds[i], errs[i] = c.d.holding(p.Partition).lead(); errs[i] == nil {
			c.cut[p.id] = true
			waits[i] = waitFor(func(done func(error)) { leds[i].Truncate(p.At, done) })
		}
	}
	await(ctx, waits, errs)
	for i, p := range ps {
		for errs[i] == nil {
			late := uncut(leds[i].State(), p)
			if len(late) == 0 {
				c.cfg.tell(p.Partition, TruncateCut)
				break
			}
			if ctx.Err() != nil {
				errs[i] = fmt.Errorf("%w: brokers %v have not cut: they do when they follow the next leader", cluster.ErrTimeout, late)
			}
			pause(ctx, stepLook)
		}
		if errs[i] != nil {
			p.Err = fmt.Errorf("%v: %w", p.Partition, errs[i])
		}
	}
}

// uncut are the replicas of which it is not known that they have cut. One that has not
// fetched for a while is waited for as well.
func uncut(s lead.State, p *cutPlan) (late []int32) {
	for _, r := range p.Replicas {
		at := slices.IndexFunc(s.Followers, func(f lead.Follower) bool { return f.Replica == r })
		if at < 0 || !s.Followers[at].Known || s.Followers[at].Owes >= 0 || s.Followers[at].Holds < 0 || s.Followers[at].Offset > p.At {
			late = append(late, r)
		}
	}
	return late
}

// giveBack has real brokers lead whatever is in our hands, also of earlier calls.
func (c *cutting) giveBack() {
	ctx, cancel := context.WithTimeout(c.alive, undoing)
	defer cancel()
	topics, err := c.d.own.Topics(ctx)
	if err != nil {
		failPlans(c.plans, fmt.Errorf("what is in our hands: %w", err))
		return
	}
	failed := c.d.control.handBack(ctx, partitionsOf(c.d.m.log.Image(), topics...), c.whole)
	c.fail(failed)
}

// returned takes in what has become of a group.
func (c *cutting) returned(group []*cutPlan, failed map[metalog.PartitionID]error) {
	for _, p := range group {
		switch err := failed[p.id]; {
		case err != nil:
			p.Err = errors.Join(p.Err, fmt.Errorf("giving it back: %w", err))
		case p.Err == nil:
			p.done = true
			c.cfg.tell(p.Partition, TruncateReturned)
		}
	}
}

// whole are the real brokers that may lead: those that have cut, and as long as none was
// told to, those in sync.
func (c *cutting) whole(id metalog.PartitionID) []int32 {
	if c.cut[id] {
		return c.d.caughtUp(id)
	}
	return c.d.control.holders(id)
}
