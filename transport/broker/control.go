package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// control brings partitions under our leadership and gives them back. What is to
// be done about a partition is decided from the metadata log alone, again after
// every change (the decide functions, which are pure): so all of it may be called
// again after a crash at any point, and goes on where it was. Partitions go
// together, one request for all that need the same. Safe for concurrent use.
type control struct {
	m         *Membership
	overrides Overrides
	open      bool       // see party
	window    sync.Mutex // held while we are not cordoned
	claims    *claims

	// How long partitions may take to get us as a replica, and from then on to be
	// led by us, before they are given back.
	joining, leading time.Duration
}

func newControl(m *Membership, overrides Overrides) *control {
	return &control{m: m, overrides: overrides, claims: newClaims(), joining: 10 * time.Second, leading: 5 * time.Second}
}

// party is who we are when something is decided.
type party struct {
	Self
	ids IDs          // ours, other workers' included
	dir metalog.UUID // our directory
	// open: real brokers may be in sync with what we lead, and lead it when we are gone.
	open bool
}

// able reports that the controller would let us lead.
func (p party) able() bool { return p.Registered && !p.Fenced && !p.Shutdown }

// own reports that a broker is one of ours, real that it is not.
func (p party) own(id int32) bool  { return p.ids.First <= id && id <= p.ids.Last }
func (p party) real(id int32) bool { return !p.own(id) }

// reals are the real brokers of a list, in its order.
func (p party) reals(list []int32) []int32 { return slices.DeleteFunc(slices.Clone(list), p.own) }

func (c *control) party() party {
	p := c.m.party()
	p.open = c.open
	return p
}

func (m *Membership) party() party {
	m.mu.Lock()
	defer m.mu.Unlock()
	return party{Self: m.self, ids: m.cfg.IDs, dir: m.id.Directory}
}

// verb is what is asked of the controller for a partition.
type verb uint8

const (
	rest    verb = iota // nothing now: somebody else has to do something
	ends                // nothing any more
	assigns             // new replicas: to; nil calls off what is under way
	syncs               // as the leader a new in-sync set: to
	elects              // the preferred leader, times
	drops               // our replica out of the in-sync set, and leadership with it
	settles             // our replica in our directory again
)

func (v verb) String() string {
	return [...]string{"wait", "end", "reassign", "in-sync set", "elect", "step down", "step up"}[v]
}

// act is what a decide function wants for a partition now; err is why it ends.
type act struct {
	verb  verb
	to    []int32
	times int
	err   error
}

func end(err error) act { return act{verb: ends, err: err} }

// decide looks at a partition. It must not block.
type decide func(party, metalog.Image, metalog.PartitionID) act

const (
	// retryAct is after how long the same is asked for again that had no effect.
	retryAct = 500 * time.Millisecond
	// maxActs bounds one request: a controller writes 10,000 records for one at most.
	maxActs = 2000
)

// asked is what was done for a partition last.
type asked struct {
	verb  verb
	epoch int32 // of the partition, when it was decided
	at    time.Time
	err   error // what the controller said
}

// drive does what decide wants until it wants nothing any more, and gives the
// reasons of those that ended with one. When ctx ends, or the controller refuses
// for good, those that are left have that as their reason.
func (c *control) drive(ctx context.Context, ids []metalog.PartitionID, decide decide) map[metalog.PartitionID]error {
	link := &controller{quorum: c.m.quorum}
	defer link.drop()
	open, failed := make(map[metalog.PartitionID]*asked, len(ids)), make(map[metalog.PartitionID]error)
	for _, id := range ids {
		open[id] = &asked{epoch: -1}
	}
	// Without an image nothing exists, and without a name nobody's partitions are ours.
	image, err := c.m.await(ctx, func(metalog.Image) bool { return c.m.party().Registered })
	if err != nil {
		return failAll(open, image, err)
	}
	for {
		image = c.m.log.Image()
		acts := pick(c.party(), image, decide, open, failed, time.Now())
		if len(open) == 0 {
			return failed
		}
		hopeless := c.perform(ctx, link, image, acts, open)
		if hopeless == nil {
			hopeless = ctx.Err()
		}
		if hopeless != nil {
			maps.Copy(failed, failAll(open, image, hopeless))
			return failed
		}
		bounded, cancel := context.WithTimeout(ctx, retryAct/4) // we change without a record as well
		_, _, _ = c.m.log.Next(bounded, image.Version)
		cancel()
	}
}

func failAll(open map[metalog.PartitionID]*asked, i metalog.Image, why error) map[metalog.PartitionID]error {
	failed := make(map[metalog.PartitionID]error, len(open))
	for id, a := range open {
		failed[id] = a.left(i, id, why)
	}
	return failed
}

// left is why a partition is left when nothing more can be done.
func (a *asked) left(i metalog.Image, id metalog.PartitionID, why error) error {
	err := fmt.Errorf("%s-%d: %w", topicName(i, id), id.Partition, why)
	if a.err != nil && !errors.Is(why, a.err) {
		err = fmt.Errorf("%w (%v: %w)", err, a.verb, a.err)
	}
	return err
}

// pick looks at all that is open and gives what is to be asked for now. What has
// ended leaves open. The same is not asked for twice before it can have had its
// effect.
func pick(us party, i metalog.Image, decide decide, open map[metalog.PartitionID]*asked, failed map[metalog.PartitionID]error, now time.Time) map[verb]map[metalog.PartitionID]act {
	acts := make(map[verb]map[metalog.PartitionID]act)
	for id, last := range open {
		a := decide(us, i, id)
		switch a.verb {
		case rest:
			continue
		case ends:
			if a.err != nil {
				failed[id] = fmt.Errorf("%s-%d: %w", topicName(i, id), id.Partition, a.err)
			}
			delete(open, id)
			continue
		}
		epoch := int32(-1)
		if p, ok := i.Partition(id); ok {
			epoch = p.PartitionEpoch
		}
		if last.verb == a.verb && last.epoch == epoch && now.Sub(last.at) < retryAct {
			continue
		}
		*last = asked{verb: a.verb, epoch: epoch, at: now, err: last.err}
		if acts[a.verb] == nil {
			acts[a.verb] = make(map[metalog.PartitionID]act)
		}
		acts[a.verb][id] = a
	}
	return acts
}

// perform sends what was picked, and notes what was refused. The error is one that
// asking again does not mend.
func (c *control) perform(ctx context.Context, link *controller, i metalog.Image, acts map[verb]map[metalog.PartitionID]act, open map[metalog.PartitionID]*asked) error {
	for v, all := range acts {
		for _, some := range chunks(i, all) {
			not, err := c.ask(ctx, link, i, v, some)
			if err != nil && ctx.Err() != nil {
				return ctx.Err() // what the controller said before stays the reason
			}
			for id := range some {
				if open[id].err = not[id]; err != nil {
					open[id].err, open[id].at = err, time.Time{}
				}
			}
			if err == nil && !notAuthorized(not.join()) {
				continue
			}
			err = cmp.Or(err, not.join())
			if notAuthorized(err) || errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			link.drop()
			c.m.logger.Info("asking the controller", "request", v.String(), "partitions", len(some), "error", err)
		}
	}
	return nil
}

// chunks are requests of a size that a controller takes.
func chunks(i metalog.Image, all map[metalog.PartitionID]act) []map[metalog.PartitionID]act {
	var out []map[metalog.PartitionID]act
	size := maxActs
	for _, id := range byTopic(i, all) {
		n := max(1, all[id].times)
		if size+n > maxActs {
			out, size = append(out, make(map[metalog.PartitionID]act)), 0
		}
		out[len(out)-1][id] = all[id]
		size += n
	}
	return out
}

// ask is one request.
func (c *control) ask(ctx context.Context, link *controller, i metalog.Image, v verb, acts map[metalog.PartitionID]act) (refused, error) {
	us := c.m.party()
	lists, counts, dirs := make(map[metalog.PartitionID][]int32), make(map[metalog.PartitionID]int), make(map[metalog.PartitionID]metalog.UUID)
	for id, a := range acts {
		lists[id], counts[id], dirs[id] = a.to, a.times, us.dir
		if v == drops {
			dirs[id] = lost
		}
	}
	switch v {
	case assigns:
		return c.place(ctx, link, i, lists)
	case syncs:
		return inSync(ctx, link, i, us.Self, lists)
	case elects:
		return elect(ctx, link, i, counts)
	default:
		return directories(ctx, link, i, us.Self, dirs)
	}
}

// partitionsOf are all partitions of topics; what does not exist has none.
func partitionsOf(i metalog.Image, topics ...string) []metalog.PartitionID {
	var out []metalog.PartitionID
	for _, name := range topics {
		if t, ok := i.TopicNamed(name); ok {
			for n := range t.Partitions {
				out = append(out, metalog.PartitionID{Topic: t.ID, Partition: n})
			}
		}
	}
	return out
}

// failedWith is one error out of those of partitions; nil when there are none.
func failedWith(failed map[metalog.PartitionID]error) error {
	if len(failed) == 0 {
		return nil
	}
	var first error
	for _, err := range failed {
		if first == nil || err.Error() < first.Error() {
			first = err
		}
	}
	if len(failed) > 1 {
		return fmt.Errorf("%d partitions, the first: %w", len(failed), first)
	}
	return first
}

// electable are the real brokers that the controller may let lead a partition
// when we are gone: those of the in-sync set, and the eligible ones of KIP-966.
func (p party) electable(part *metalog.Partition) []int32 {
	out := p.reals(slices.Concat(part.ISR, part.ELR, part.LastKnownELR))
	slices.Sort(out)
	return slices.Compact(out)
}

// notAuthorized is TOPIC_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED.
func notAuthorized(err error) bool { return errors.Is(err, cluster.ErrAuthorization) }

// passing reports that a refusal may be over soon.
func passing(err error) bool {
	return errors.Is(err, cluster.ErrUnavailable) || errors.Is(err, cluster.ErrTimeout)
}

// saying is a code with the controller's message.
func saying(code int16, message *string) error {
	err := wire.CodeError(code)
	if err != nil && message != nil && *message != "" {
		return fmt.Errorf("%w: %s", err, *message)
	}
	return err
}
