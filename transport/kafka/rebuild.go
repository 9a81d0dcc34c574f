package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	_ fetcher.Rebuilder = (*Cluster)(nil)
	_ fetcher.Epochs    = (*Cluster)(nil) // as a destination too
)

// Rebuild deletes the topic if it has the id given, and creates it again, empty, as
// described by was. It needs Config.Truncation Rebuild, Kafka 2.8, and the rights to
// DELETE and CREATE the topic and to read its settings.
//
// It may be broken off anywhere and called again with the same arguments: what is
// deleted is named by its id, so nothing that was created since can be meant. A topic
// of the name with another id was created by a call before, and its id is answered;
// unless it has fewer partitions than was: then a client created it in between
// (auto.create.topics.enable), and the error is ErrTopicReplaced.
//
// Before anything is deleted it is found out whether the topic could be created again.
// Rebuild returns when no broker shows the old topic any more, all show the new one, and
// every leader answers for it; what the brokers still lack is in the error when ctx
// ends before. Appends of this Cluster to the topic end with errors, and none is taken
// until Ends has found the new log.
func (c *Cluster) Rebuild(ctx context.Context, topic string, id cluster.TopicID, was cluster.NewTopic) (cluster.TopicID, error) {
	switch {
	case c.cfg.Truncation != Rebuild:
		return cluster.TopicID{}, fmt.Errorf("topic %s: %w: Config.Truncation does not allow Rebuild", topic, errors.ErrUnsupported)
	case id.IsZero():
		return cluster.TopicID{}, fmt.Errorf("topic %s: %w: without a topic id nothing tells what would be deleted", topic, errors.ErrUnsupported)
	case was.Name != topic:
		return cluster.TopicID{}, fmt.Errorf("topic %s: %w: it is described as %q", topic, cluster.ErrRefused, was.Name)
	}
	r := rebuild{c: c, topic: topic, old: id, was: was, quiet: quiet}
	return r.run(ctx)
}

// rebuild is one Rebuild under way. What it has to do is read from the cluster in each
// step; gone only spares deleting twice.
type rebuild struct {
	c     *Cluster
	topic string
	old   cluster.TopicID
	was   cluster.NewTopic
	quiet time.Duration // how long the topic stays absent
	gone  bool          // the controller does not have the old topic any more
	// absent is when all brokers were first seen without the topic.
	absent time.Time
}

// quiet is how long the topic stays absent, everywhere. A worker of another process that
// still believes in the old log either sends within that time, and is refused, or has
// rested so long that it looks at the log before it sends (trust). So none of its
// batches lands in the new log, which would take any as the first.
const quiet = trust + 200*time.Millisecond

func (r *rebuild) run(ctx context.Context) (cluster.TopicID, error) {
	var last error
	for try := 0; ; try++ {
		if try > 0 && !sleep(ctx, pause(min(try, leaderTries))) {
			return cluster.TopicID{}, fmt.Errorf("topic %s is not rebuilt yet: %w", r.topic, errors.Join(ctx.Err(), last))
		}
		made, err := r.step(ctx)
		if err == nil {
			return made, nil
		}
		if !r.passing(err) {
			return cluster.TopicID{}, fmt.Errorf("topic %s is not rebuilt: %w", r.topic, err)
		}
		last = err
		r.c.client.Stale()
	}
}

// step looks and does what is next. Without an error the new topic stands and its id is
// answered.
func (r *rebuild) step(ctx context.Context) (cluster.TopicID, error) {
	sights, missed := r.c.sightings(ctx, r.topic)
	if shows(sights, r.old) {
		if r.gone {
			return cluster.TopicID{}, fmt.Errorf("%w: brokers still show the deleted topic", cluster.ErrUnavailable)
		}
		return cluster.TopicID{}, r.remove(ctx)
	}
	if missed != nil {
		return cluster.TopicID{}, missed
	}
	if !anyTopic(sights) {
		if r.absent.IsZero() {
			r.absent = time.Now()
		}
		if time.Since(r.absent) < r.quiet {
			return cluster.TopicID{}, fmt.Errorf("%w: the topic stays deleted for a moment", cluster.ErrUnavailable)
		}
		return cluster.TopicID{}, r.create(ctx)
	}
	return r.settled(ctx, sights)
}

// remove deletes the old topic. Which one is meant is decided by the controller.
func (r *rebuild) remove(ctx context.Context) error {
	if err := r.c.creatable(ctx, r.was); err != nil {
		return fmt.Errorf("nothing is deleted, as the topic could not be created again: %w", err)
	}
	if err := r.c.retire(ctx, r.topic); err != nil {
		return err
	}
	r.c.client.Stale(r.topic)
	err := r.c.deleteTopic(ctx, r.old)
	if err == nil || errors.Is(err, unknownTopicID) {
		r.gone = true
		return fmt.Errorf("%w: the topic is deleted", cluster.ErrUnavailable)
	}
	return err
}

// create runs when no broker shows a topic of the name, so that whatever is still on its
// way to the old one is refused by all of them.
func (r *rebuild) create(ctx context.Context) error {
	r.gone = true
	// Again: what was begun between the deletion and its arrival everywhere.
	if err := r.c.retire(ctx, r.topic); err != nil {
		return err
	}
	r.c.client.Stale(r.topic) // an Ends must not take the new log for one of the old id
	errs := make([]error, 1)
	if err := r.c.createOnce(ctx, []cluster.NewTopic{r.was}, errs); err != nil {
		return err
	}
	if errs[0] != nil {
		return errs[0]
	}
	return fmt.Errorf("%w: the topic is created", cluster.ErrUnavailable)
}

// settled waits for the new topic to be the same everywhere, and for its leaders.
func (r *rebuild) settled(ctx context.Context, sights []sight) (cluster.TopicID, error) {
	none := cluster.TopicID{}
	id := sights[0].id
	for _, s := range sights {
		switch {
		case s.id != id, id.IsZero():
			return none, fmt.Errorf("%w: broker %d does not show the new topic yet", cluster.ErrUnavailable, s.broker)
		case s.partitions < r.was.Partitions:
			return none, fmt.Errorf("%w by somebody else, as %v with %d partitions instead of %d", cluster.ErrTopicReplaced, id, s.partitions, r.was.Partitions)
		case s.leaderless > 0:
			return none, fmt.Errorf("%w: %d partitions have no leader yet", cluster.ErrUnavailable, s.leaderless)
		}
	}
	if err := r.c.retire(ctx, r.topic); err != nil {
		return none, err
	}
	meta, err := r.c.client.Metadata(ctx, []string{r.topic}, true)
	if err != nil {
		return none, err
	}
	if meta.Topics[r.topic].ID != id {
		return none, fmt.Errorf("%w: the topic changes while it is looked at", cluster.ErrUnavailable)
	}
	// A broker shows a topic a moment before it serves it.
	var partitions []cluster.Partition
	for i := range sights[0].partitions {
		partitions = append(partitions, cluster.Partition{Topic: r.topic, Partition: i})
	}
	answers, err := r.c.Offsets(ctx, partitions)
	if err != nil {
		return none, err
	}
	for _, a := range answers {
		if a.Err != nil {
			return none, a.Err
		}
	}
	return id, nil
}

const (
	unknownTopicID = wire.Code(100)
	tooFewBrokers  = wire.Code(38) // INVALID_REPLICATION_FACTOR: more replicas than brokers are up
	throttled      = wire.Code(89)
)

// passing reports what time mends: brokers and controllers that cannot be asked, or that
// do not know yet what others know.
func (r *rebuild) passing(err error) bool {
	return moved(err) || errors.Is(err, cluster.ErrTimeout) || errors.Is(err, cluster.ErrTopicExists) ||
		errors.Is(err, cluster.ErrUnknownTopic) || r.gone && errors.Is(err, tooFewBrokers) || errors.Is(err, throttled)
}

// deleteTopicsByID is the first DeleteTopics that takes ids.
const deleteTopicsByID = 6

func (c *Cluster) deleteTopic(ctx context.Context, id cluster.TopicID) error {
	conn, err := c.client.Controller(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	if conn.MaxVersion(req.Key()) < deleteTopicsByID {
		return fmt.Errorf("%w: the cluster is too old to delete topics by id", errors.ErrUnsupported)
	}
	req.TimeoutMillis = int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/4).Milliseconds())
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID = id
	req.Topics = append(req.Topics, t)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	topics := answer.(*kmsg.DeleteTopicsResponse).Topics
	if len(topics) != 1 {
		return errMissing
	}
	const disabled = wire.Code(73)
	err = saying(topics[0].ErrorCode, topics[0].ErrorMessage)
	if errors.Is(err, disabled) {
		return fmt.Errorf("the brokers have delete.topic.enable=false, and a topic cannot be rebuilt without being deleted: %w", err)
	}
	return err
}

// retire ends everything that this Cluster has under way for a topic: lanes answer what
// they have, forget their stretch and take nothing until Ends has begun another.
func (c *Cluster) retire(ctx context.Context, topic string) error {
	c.mu.Lock()
	var lanes []*lane
	for p, l := range c.lanes {
		if p.Topic == topic {
			lanes = append(lanes, l)
		}
	}
	c.mu.Unlock()
	for _, l := range lanes {
		if err := c.retireLane(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) retireLane(ctx context.Context, l *lane) error {
	for {
		if err := c.halt(ctx, l); err != nil {
			return err
		}
		// Not if an Ends opened the lane in between and something is queued: that
		// would be sent without an id.
		l.mu.Lock()
		retired := l.idle()
		if retired {
			l.id, l.seen, l.err = 0, -1, errHalted
		}
		l.mu.Unlock()
		if retired {
			return nil
		}
	}
}
