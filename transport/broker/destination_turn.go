package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Turn returns when it is this process of its group that mirrors. shared is false where the
// destination has no group. Once the turn is another's, Run returns cluster.ErrSuperseded.
func (d *Destination) Turn(ctx context.Context) (shared bool, err error) {
	if d.cfg.Workers == "" {
		return false, nil
	}
	select {
	case <-d.turned:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// hasTurn reports that Turn returns at once.
func (d *Destination) hasTurn() bool {
	if d.cfg.Workers == "" {
		return true
	}
	select {
	case <-d.turned:
		return true
	default:
		return false
	}
}

// turnOf is whose turn it is: of those that lead something of ours the first; where nobody
// does, of those that alone could; where there is nothing to be led, of those that have it; and
// where nobody has, of all that stand by. It is pure.
func turnOf(us int32, has bool, l leads, standing []int32, words map[int32]word) int32 {
	for _, first := range [][]int32{l.brokers, l.down} {
		if len(first) > 0 {
			return slices.Min(first)
		}
	}
	all := append(slices.Clone(standing), us)
	having := slices.DeleteFunc(slices.Clone(all), func(id int32) bool { return id == us && !has || id != us && !words[id].turn })
	if len(having) > 0 {
		return slices.Min(having)
	}
	return slices.Min(all)
}

// leads is what brokers of our range lead of ours.
type leads struct {
	brokers []int32       // in the order of their ids
	down    []int32       // those that would be elected for what nobody leads, and are fenced
	after   map[int32]int // how many partitions we may be elected for when one of them goes
}

// leadsOf looks at topics. A partition that nobody leads for a moment counts for those that
// may be elected. It is pure.
func leadsOf(us party, image metalog.Image, topics []string) leads {
	l := leads{after: make(map[int32]int)}
	for _, id := range partitionsOf(image, topics...) {
		p, ok := image.Partition(id)
		if !ok {
			continue
		}
		by := []int32{p.Leader}
		if p.Leader < 0 {
			able := slices.DeleteFunc(slices.Concat(p.ISR, p.ELR), us.real)
			by = living(image, able)
			l.down = append(l.down, slices.DeleteFunc(able, func(r int32) bool { return slices.Contains(by, r) })...)
		}
		for _, r := range by {
			if us.real(r) {
				continue
			}
			if !slices.Contains(l.brokers, r) {
				l.brokers = append(l.brokers, r)
			}
			if r != us.Broker && slices.Contains(p.ISR, us.Broker) {
				l.after[r]++
			}
		}
	}
	slices.Sort(l.brokers)
	slices.Sort(l.down)
	l.down = slices.Compact(l.down)
	return l
}

// standby is what standBy knows; only its goroutine uses it.
type standby struct {
	d       *Destination
	link    controller
	seen    uint64 // version of the image that leads was read off
	leads   leads
	yielded time.Time
	warmed  time.Time
}

// standBy waits for our turn and watches whose it is. Its error is that it is another's
// after it was ours.
func (d *Destination) standBy(ctx context.Context) error {
	s := &standby{d: d, link: controller{quorum: d.m.quorum}}
	defer s.link.drop()
	tick := time.NewTicker(d.cfg.Silence / 6)
	defer tick.Stop()
	for {
		if err := s.look(ctx, time.Now()); err != nil {
			return err
		}
		if !d.hasTurn() {
			s.warm(ctx, time.Now())
		}
		select {
		case <-tick.C:
		case <-d.peers.stirred:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *standby) look(ctx context.Context, now time.Time) error {
	d := s.d
	words, image, us := d.peers.look(now), d.m.log.Image(), d.m.party()
	b, _, joined := d.m.mine(image)
	if image.Version == 0 || us.Broker < 0 || d.hasTurn() && len(words) == 0 {
		return nil
	}
	if image.Version != s.seen || !d.hasTurn() { // what is ours changes by itself as well
		s.seen, s.leads = image.Version, leadsOf(us, image, d.own.names())
	}
	holder := turnOf(us.Broker, d.hasTurn(), s.leads, standing(image, words, now, d.cfg.Silence), words)
	switch {
	case d.hasTurn() && holder != us.Broker:
		return fmt.Errorf("%w: broker %d leads", cluster.ErrSuperseded, holder)
	case d.hasTurn(), !joined, b.Fenced:
		return nil
	case holder == us.Broker:
		if !unanswered(image, us, words) {
			s.begin(ctx)
		}
		return nil
	case slices.Contains(s.leads.brokers, us.Broker):
		s.yield(ctx, now)
	}
	s.fence(ctx, image, words, now)
	return nil
}

// unanswered reports that one of our range is up of which we do not know yet who it is.
func unanswered(image metalog.Image, us party, words map[int32]word) bool {
	for b := range image.Brokers() {
		if us.own(b.ID) && b.ID != us.Broker && !b.Fenced && !words[b.ID].asked {
			return true
		}
	}
	return false
}

// begin takes the turn. Where we do not lead yet it has to be known before what is ours.
func (s *standby) begin(ctx context.Context) {
	if !slices.Contains(s.leads.brokers, s.d.m.Self().Broker) && s.d.recall(ctx) != nil {
		return // it is tried again
	}
	us, image := s.d.m.party(), s.d.m.log.Image()
	if holder := turnOf(us.Broker, false, leadsOf(us, image, s.d.own.names()), nil, nil); holder == us.Broker {
		s.d.cfg.Logger.Info("it is our turn", "broker", us.Broker)
		close(s.d.turned)
	}
}

// yield gives up what we lead to those of ours that are in sync.
func (s *standby) yield(ctx context.Context, now time.Time) {
	d, us, image := s.d, s.d.m.party(), s.d.m.log.Image()
	if now.Sub(s.yielded) < time.Second {
		return
	}
	for _, id := range partitionsOf(image, d.own.names()...) {
		p, ok := image.Partition(id)
		if ok && p.Leader == us.Broker && !slices.ContainsFunc(p.ISR, func(r int32) bool { return us.own(r) && r != us.Broker }) {
			return // nobody could take it, until keepPeers has let somebody in
		}
	}
	s.yielded = now
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d.cfg.Logger.Info("it is another's turn: giving up what we lead", "broker", us.Broker)
	err := d.m.Fence(bounded, true)
	again, over := context.WithTimeout(ctx, patience)
	defer over()
	if err = errors.Join(err, d.m.Fence(again, false)); err != nil && ctx.Err() == nil {
		d.cfg.Logger.Warn("giving up what we lead", "error", err)
	}
}

// warm has the connection to the controller at hand, over which it is asked to fence another.
func (s *standby) warm(ctx context.Context, now time.Time) {
	if now.Sub(s.warmed) < warmEvery {
		return
	}
	s.warmed = now
	ctx, cancel := context.WithTimeout(ctx, s.d.cfg.Silence/2)
	defer cancel()
	if s.link.active != nil && s.link.active.Err() != nil {
		s.link.drop()
	}
	_, _ = s.link.connect(ctx) // else it is looked for when it is needed
}

// warmEvery is how often it is looked whether that connection stands.
const warmEvery = 5 * time.Second

// fence takes those that lead and are silent for dead.
func (s *standby) fence(ctx context.Context, image metalog.Image, words map[int32]word, now time.Time) {
	d := s.d
	for _, id := range s.leads.brokers {
		b, ok := image.Broker(id)
		if w := words[id]; !ok || b.Fenced || s.leads.after[id] == 0 || !w.overdue(now, d.cfg.Silence) {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := s.link.inTheirName(bounded, b, image.Offset-1, wishes{cordoned: true, fenced: true})
		cancel()
		d.cfg.Logger.Warn("the worker that leads is silent, or has begun anew: another one is elected", "broker", id, "error", err)
		if err == nil {
			d.peers.fenced(id)
			s.hasten(ctx)
		}
	}
}

// tellsHighWatermark is the version of Fetch with which brokers are told at once how far the
// metadata log counts (KIP-1166, Kafka 4.1).
const tellsHighWatermark = 18

// hasten has brokers hear of the election now. Before KIP-1166 they get the record at once, and only with
// the next one, or half a second later, that it counts. The next one are the ids of a thousand producers.
func (s *standby) hasten(ctx context.Context) {
	active := s.link.active
	if active == nil || active.MaxVersion(int16(kmsg.Fetch)) >= tellsHighWatermark {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.d.cfg.Silence)
	defer cancel()
	if _, err := s.d.block(bounded, &s.link); err != nil {
		s.d.cfg.Logger.Debug("brokers hear of the election half a second later", "error", err)
	}
}

// rereadEvery is how often it is read what is ours, at most, when somebody else has the turn.
const rereadEvery = 250 * time.Millisecond

// keepOwn follows what the worker that has the turn does with topics.
func (d *Destination) keepOwn(ctx context.Context) error {
	version, need := uint64(0), true
	for ctx.Err() == nil {
		if need {
			need = d.recall(ctx) != nil
			pause(ctx, rereadEvery)
			continue
		}
		image, delta, err := d.m.log.Next(ctx, version)
		if err != nil {
			continue
		}
		version, need = image.Version, delta.All
		d.peers.stir() // whose turn it is may be another's now
		for id := range delta.Partitions {
			need = need || d.mixed(image, id)
		}
	}
	return nil
}

// mixed reports that who leads a partition does not go with what we know of whose it is.
func (d *Destination) mixed(image metalog.Image, id metalog.PartitionID) bool {
	us := d.m.party()
	p, ok := image.Partition(id)
	return !ok || p.Leader >= 0 && us.own(p.Leader) != d.own.has(topicName(image, id))
}

// keepPeers has the others of our group in sync of what we lead.
func (d *Destination) keepPeers(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, tickEvery) {
		now, image := time.Now(), d.m.log.Image()
		peers := standing(image, d.peers.words(), now, d.cfg.Silence)
		if image.Version == 0 || len(peers) == 0 {
			continue
		}
		var ids []metalog.PartitionID
		for _, h := range d.allLed() {
			h.mu.Lock()
			if h.led != nil {
				ids = append(ids, h.id)
			}
			h.mu.Unlock()
		}
		ids = lonely(d.control.party(), image, ids, peers)
		for some := range slices.Chunk(ids, maxAdopt) {
			bounded, cancel := context.WithTimeout(ctx, patience)
			err := failedWith(d.control.welcome(bounded, some, peers))
			cancel()
			if err != nil && ctx.Err() == nil {
				d.cfg.Logger.Warn("others of ours cannot take over yet", "brokers", peers, "error", err)
				pause(ctx, 2*time.Second)
			}
		}
	}
	return nil
}
