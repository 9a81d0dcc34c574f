package broker

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

// grow brings topics that we lead to as many partitions as Partitions says, and
// returns when we lead them all; the errors are in the order of the topics. New
// partitions have as many real replicas as the first one. A topic that has enough
// stays as it is. Real brokers are still in sync in new partitions: call narrow.
func (c *control) grow(ctx context.Context, topics []cluster.Topic) []error {
	errs := make([]error, len(topics))
	if err := c.m.WaitJoined(ctx); err != nil {
		return fill(errs, fmt.Errorf("waiting to be a member: %w", err))
	}
	image, us := c.m.log.Image(), c.m.party()
	s := newSpread(image, us, newRandom())
	plans, left := make([]*plan, len(topics)), 0
	for n, topic := range topics {
		p, err := more(image, us, topic, s)
		if err != nil {
			errs[n] = fmt.Errorf("topic %s: %w", topic.Name, err)
			continue
		}
		if plans[n] = p; p != nil {
			left++
		}
	}
	if left == 0 {
		return errs
	}
	link := &controller{quorum: c.m.quorum}
	defer link.drop()
	if err := c.uncordoned(ctx, nil, func() error { return growAll(ctx, link, plans, errs) }); err != nil {
		return fill(errs, err)
	}
	c.awaitLed(ctx, plans, errs)
	return errs
}

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// more are the replicas of the partitions that a topic lacks; nil when it lacks
// none.
func more(i metalog.Image, us party, want cluster.Topic, s *spread) (*plan, error) {
	t, ok := i.TopicNamed(want.Name)
	if !ok {
		return nil, cluster.ErrUnknownTopic
	}
	if want.ID != (cluster.TopicID{}) && want.ID != t.ID {
		return nil, cluster.ErrTopicReplaced
	}
	if t.Partitions >= want.Partitions {
		return nil, nil
	}
	first, ok := i.Partition(metalog.PartitionID{Topic: t.ID})
	if !ok {
		return nil, cluster.ErrUnknownTopic
	}
	p := &plan{NewTopic: cluster.NewTopic{Name: t.Name, Partitions: want.Partitions}, have: t.Partitions}
	for range want.Partitions - t.Partitions {
		reals, err := s.next(len(us.reals(first.Replicas)))
		if err != nil {
			return nil, err
		}
		p.replicas = append(p.replicas, append([]int32{us.Broker}, reals...))
	}
	return p, nil
}

// growAll is one request.
func growAll(ctx context.Context, link *controller, plans []*plan, errs []error) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10000
	index := make(map[string]int)
	for n, p := range plans {
		if p == nil {
			continue
		}
		index[p.Name] = n
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = p.Name, p.Partitions
		for _, replicas := range p.replicas {
			one := kmsg.NewCreatePartitionsRequestTopicAssignment()
			one.Replicas = replicas
			t.Assignment = append(t.Assignment, one)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := link.do(ctx, req)
	if err != nil {
		return fmt.Errorf("adding partitions to %d topics: %w", len(index), err)
	}
	for _, t := range resp.(*kmsg.CreatePartitionsResponse).Topics {
		if n, ok := index[t.Topic]; ok {
			if err := saying(t.ErrorCode, t.ErrorMessage); err != nil {
				errs[n] = fmt.Errorf("topic %s: %w", t.Topic, err)
			}
		}
	}
	return nil
}
