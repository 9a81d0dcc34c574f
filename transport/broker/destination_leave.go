package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/metalog"
)

// leavers is the mirror that stretches have which are ended by Leave.
const leavers = "leave"

// Leave makes all topics that are ours ordinary ones, in the order of a stop, and takes us
// out of the cluster: see Membership.Leave, which it ends with. It is called while Run
// runs. Positions and committed offsets are a mirror's affair, so a mirror stops its topics
// before; what one has appended to and not stopped is refused, cluster.ErrActive. After
// an error, or in another process after a crash, it may be called again, and goes on.
func (d *Destination) Leave(ctx context.Context) error {
	if _, err := d.joined(ctx); err != nil {
		return err
	}
	if err := d.own.recall(ctx); err != nil {
		return fmt.Errorf("which topics are ours: %w", err)
	}
	// What is handed back stays ours until all is done to it, so that another call finds it.
	d.own.hold()
	if err := d.handBackAll(ctx); err != nil {
		d.own.free()
		return err
	}
	if err := d.own.Overrides.Delete(ctx, d.own.free()); err != nil {
		return fmt.Errorf("forgetting which topics were ours: %w", err)
	}
	if err := d.own.recall(ctx); err != nil {
		return fmt.Errorf("which topics are ours: %w", err)
	}
	return d.m.Leave(ctx)
}

// handBackAll ends all that is ours.
func (d *Destination) handBackAll(ctx context.Context) error {
	topics := d.own.names()
	image := d.m.log.Image()
	var ps []cluster.Partition
	var stretches []fetcher.Stretch
	for _, id := range partitionsOf(image, topics...) {
		p := cluster.Partition{Topic: topicName(image, id), Partition: id.Partition}
		ps, stretches = append(ps, p), append(stretches, fetcher.Stretch{Mirror: leavers, Partition: p})
	}
	ends, err := d.Fence(ctx, stretches)
	if err != nil {
		return err
	}
	var errs []error
	var back []cluster.Partition
	for i, e := range ends {
		if e.Err != nil {
			errs = append(errs, fmt.Errorf("%v: handing it back: %w", ps[i], e.Err))
		} else {
			back = append(back, ps[i])
		}
	}
	aborted, err := d.AbortOpen(ctx, back)
	errs = append(errs, err)
	for _, a := range aborted {
		errs = append(errs, a.Err)
	}
	errs = append(errs, d.GuardProducers(ctx, back)...)
	errs = append(errs, failedWithTopics(d.control.putBack(ctx, d.over(topics))))
	return few(errs)
}

// over are the topics of which no partition is in our hands. Those that are gone are.
func (d *Destination) over(topics []string) []string {
	image, us := d.m.log.Image(), d.m.party()
	return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool {
		return slices.ContainsFunc(partitionsOf(image, topic), func(id metalog.PartitionID) bool { return !handedBack(us, image, id) })
	})
}

func failedWithTopics(failed map[string]error) error {
	var errs []error
	for topic, err := range failed {
		errs = append(errs, fmt.Errorf("topic %s: %w", topic, err))
	}
	return few(errs)
}

// few joins errors, of many the first ones.
func few(errs []error) error {
	const shown = 5
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > shown {
		errs = append(errs[:shown:shown], fmt.Errorf("and %d more", len(errs)-shown))
	}
	return errors.Join(errs...)
}
