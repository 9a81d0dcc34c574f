package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/metalog"
)

// cutPlan is what is known of a cut before it is made.
type cutPlan struct {
	Truncation
	id    metalog.PartitionID
	from  int64 // the batch goes that holds it: Offset, or where a transaction begins
	end   int64 // the log must not be longer; 0: it may
	done  bool  // cut, and given back
	epoch int32 // the leader's whose log was looked at
	read  int64 // the tail up to here was read, and saved
	count tailFound
}

// inside has the metadata log read while do runs, without being a broker, when it is
// found that we may and can be one.
func inside(ctx context.Context, cfg Config, do func(context.Context, *Membership) error) error {
	return insideBy(ctx, cfg, (*Membership).begin, do)
}

// insideBy is inside with checks of one's own.
func insideBy(ctx context.Context, cfg Config, begin func(*Membership, context.Context) error, do func(context.Context, *Membership) error) error {
	m, err := New(cfg)
	if err != nil {
		return err
	}
	defer m.brokers.Close()
	life, stop := context.WithCancel(ctx)
	var ran error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		ran = m.log.Run(life)
	}()
	defer func() { stop(); <-done }()
	if err := begin(m, life); err != nil {
		stop()
		<-done
		if ctx.Err() == nil && ran != nil {
			err = m.named(ctx, ran)
		}
		return fmt.Errorf("the cluster cannot be joined: %w", err)
	}
	return do(ctx, m)
}

// survey looks at what is to be cut, without being a broker. The error is of all.
func survey(ctx context.Context, cfg TruncateConfig, cuts []fetcher.Cut) (plans []*cutPlan, err error) {
	err = inside(ctx, cfg.Membership, func(ctx context.Context, m *Membership) error {
		s := &surveyor{cfg: cfg, m: m, d: &Destination{m: m}}
		for _, c := range cuts {
			plans = append(plans, &cutPlan{Truncation: Truncation{Partition: c.Partition, Offset: c.Offset}, from: c.Offset, end: c.End})
		}
		for _, look := range []func(context.Context, *cutPlan) error{s.check, s.look, s.save} {
			each(sound(plans), func(p *cutPlan) { p.Err = look(ctx, p) })
			if !cfg.mirrored && len(sound(plans)) < len(plans) {
				break // nothing is cut then, so nothing has to be saved
			}
		}
		return ctx.Err()
	})
	return plans, err
}

// sound are the plans against which nothing speaks so far.
func sound(of []*cutPlan) []*cutPlan {
	return slices.DeleteFunc(slices.Clone(of), func(p *cutPlan) bool { return p.Err != nil })
}

// grown: the log is longer than whoever has it cut has seen, and saved.
func (p *cutPlan) grown() error {
	if p.end == 0 || p.LogEnd <= p.end {
		return nil
	}
	return &cluster.OffsetError{Partition: p.Partition, Span: cluster.Span{From: p.end, To: p.LogEnd}, Err: cluster.ErrUnavailable,
		Detail: "somebody has written there since it was looked at what is to be cut, so that nothing is"}
}

// surveyor looks at cuts.
type surveyor struct {
	cfg TruncateConfig
	m   *Membership
	d   *Destination // to ask replicas with
}

// check is what the metadata log says against a cut.
func (s *surveyor) check(ctx context.Context, p *cutPlan) error {
	stored, err := s.cfg.Overrides.Load(ctx, p.Partition.Topic)
	if err != nil {
		return fmt.Errorf("%v: what an earlier cut has left: %w", p.Partition, err)
	}
	image := s.m.log.Image()
	if p.id, err = cuttable(s.cfg.Membership.IDs, image, p.Partition, stored[p.Partition.Topic] != nil); err != nil {
		return fmt.Errorf("%v: %w", p.Partition, err)
	}
	part, _ := image.Partition(p.id)
	real := func(list []int32) []int32 { return party{ids: s.cfg.Membership.IDs}.reals(list) }
	p.epoch = part.LeaderEpoch
	p.Leader, p.Replicas, p.InSync = part.Leader, real(part.Replicas), real(part.ISR)
	return nil
}

// cuttable finds a partition, or says why it cannot be cut. begun: an earlier call has
// begun with the topic, so that it may be in our hands. It is pure.
func cuttable(ids IDs, i metalog.Image, name cluster.Partition, begun bool) (metalog.PartitionID, error) {
	topic, ok := i.TopicNamed(name.Topic)
	if !ok {
		return metalog.PartitionID{}, cluster.ErrUnknownTopic
	}
	id := metalog.PartitionID{Topic: topic.ID, Partition: name.Partition}
	p, ok := i.Partition(id)
	if !ok {
		return id, fmt.Errorf("%w: the topic has partitions 0 to %d", cluster.ErrUnknownTopic, topic.Partitions-1)
	}
	us := party{ids: ids}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.HasPrefix(name.Topic, "__") {
		bad("%w: it is a topic of Kafka's own", cluster.ErrRefused)
	}
	if tiered(i, name.Topic) {
		bad("%w: remote.storage.enable is set: what is in the remote tier cannot be cut", cluster.ErrRefused)
	}
	if !begun && slices.ContainsFunc(p.Replicas, us.own) {
		bad("%w: broker ids %d to %d are among its replicas %v, and no cut of ours has put them there", cluster.ErrRefused, ids.First, ids.Last, p.Replicas)
	}
	if moving := us.reals(slices.Concat(p.Adding, p.Removing)); len(moving) > 0 {
		bad("%w: the partition is being moved: replicas %v added, %v removed", cluster.ErrUnavailable, p.Adding, p.Removing)
	}
	if p.Leader < 0 && !begun {
		bad("%w: nobody leads", cluster.ErrNotLeader)
	}
	reals := us.reals(p.Replicas)
	if len(reals) == 0 {
		bad("%w: it has no replica on a real broker", cluster.ErrRefused)
	}
	for _, r := range reals {
		switch b, ok := i.Broker(r); {
		case !ok:
			bad("%w: the replica on broker %d is away: it would keep the tail", cluster.ErrUnavailable, r)
		case b.Fenced || b.InControlledShutdown:
			bad("%w: the replica on broker %d is down: it would keep the tail", cluster.ErrUnavailable, r)
		}
	}
	return id, errors.Join(errs...)
}

// source is a replica that has the log, the leader if it can be.
func (p *cutPlan) source(us IDs) int32 {
	if p.Leader >= 0 && !(party{ids: us}).own(p.Leader) {
		return p.Leader
	}
	return slices.Concat(p.InSync, p.Replicas)[0]
}

// look finds where the log would end.
func (s *surveyor) look(ctx context.Context, p *cutPlan) error {
	from := p.source(s.cfg.Membership.IDs)
	var err error
	if p.LogStart, p.LogEnd, err = s.d.ends(ctx, from, p.Partition); err != nil {
		return fmt.Errorf("%v: where the log begins and ends, asked of broker %d: %w", p.Partition, from, err)
	}
	p.read = p.LogEnd
	if err := p.grown(); err != nil {
		return err
	}
	if p.Offset < p.LogStart {
		return fmt.Errorf("%v: %w: offset %d is below the log start %d", p.Partition, cluster.ErrOutOfRange, p.Offset, p.LogStart)
	}
	if p.At = p.Offset; p.Offset >= p.LogEnd {
		p.At = p.LogEnd
		return nil
	}
	stored, err := s.cfg.Overrides.Load(ctx, p.Partition.Topic)
	if err != nil {
		return fmt.Errorf("%v: what an earlier cut has left: %w", p.Partition, err)
	}
	before, ok, err := noted(stored[p.Partition.Topic], p.Partition.Partition)
	if err != nil {
		return fmt.Errorf("%v: %w", p.Partition, err)
	}
	if ok && before.at < p.LogEnd {
		there, err := s.there(ctx, p, from, before.at)
		if err != nil {
			return err
		}
		if cutBefore(before, p.Offset, there) {
			p.At, p.Earlier = before.at, true
			return nil
		}
	}
	there, err := s.there(ctx, p, from, p.Offset)
	if err == nil && there.some {
		p.At = max(min(p.Offset, there.base), p.LogStart)
	}
	return err
}

// there is the batch at an offset below the log end, waited for until readers may have it.
func (s *surveyor) there(ctx context.Context, p *cutPlan, replica int32, offset int64) (glimpse, error) {
	for deadline := time.Now().Add(patience); ; pause(ctx, stepLook) {
		got, err := s.d.glimpse(ctx, replica, p.Partition, p.id, offset)
		switch {
		case err != nil:
			return got, fmt.Errorf("%v: which batch holds offset %d, asked of broker %d: %w", p.Partition, offset, replica, err)
		case got.some || got.high > offset:
			return got, nil
		case ctx.Err() != nil:
			return got, ctx.Err()
		case !time.Now().Before(deadline):
			return got, fmt.Errorf("%v: %w: broker %d gives offset %d to nobody yet: its high watermark is %d", p.Partition, cluster.ErrUnavailable, replica, offset, got.high)
		}
	}
}

// save reads what goes, up to where the log ends now, and hands it over to be saved. For a
// mirror, which saves what it wants to be cut itself, that is only where more goes.
func (s *surveyor) save(ctx context.Context, p *cutPlan) error {
	if p.Nothing() {
		s.cfg.tell(p.Partition, TruncateLooked)
		return nil
	}
	salvage := s.cfg.Salvage
	if s.cfg.DryRun || s.cfg.mirrored {
		salvage = nil
	}
	t := s.tail(p)
	if err := t.save(ctx, salvage); err != nil {
		return err
	}
	p.count, p.Batches, p.Bytes = t.found, t.found.batches, t.found.bytes
	o, err := t.opened(ctx, max(p.LogStart, p.At-lookBack), p.At)
	if p.Opened = o.producers; err != nil {
		return err
	}
	if len(o.producers) > 0 && s.cfg.mirrored {
		if err := s.before(ctx, p, t, o); err != nil {
			return err
		}
	}
	s.cfg.tell(p.Partition, TruncateLooked)
	return nil
}

func (s *surveyor) tail(p *cutPlan) *tail {
	return &tail{m: s.m, name: p.Partition, id: p.id, replica: p.source(s.cfg.Membership.IDs), span: cluster.Span{From: p.At, To: p.LogEnd}}
}
