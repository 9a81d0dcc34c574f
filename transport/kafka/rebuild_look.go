package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sight is what one broker shows of a topic: the zero id when it knows none.
type sight struct {
	broker     int32
	id         cluster.TopicID
	partitions int32
	leaderless int32
}

// sightings asks every broker that the cluster has. The error tells of the first that
// did not answer; the others' answers are given with it.
func (c *Cluster) sightings(ctx context.Context, topic string) ([]sight, error) {
	meta, err := c.client.Metadata(ctx, []string{}, true)
	if err != nil {
		return nil, err
	}
	if len(meta.Brokers) == 0 {
		return nil, fmt.Errorf("%w: the cluster shows no brokers", cluster.ErrUnavailable)
	}
	var mu sync.Mutex
	var all []sight
	var wg sync.WaitGroup
	failed := map[int32]error{}
	for broker := range meta.Brokers {
		wg.Go(func() {
			s, err := c.sighting(ctx, broker, topic)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[broker] = err
				return
			}
			all = append(all, s)
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b sight) int { return cmp.Compare(a.broker, b.broker) })
	for broker := range meta.Brokers {
		if err := failed[broker]; err != nil {
			return all, fmt.Errorf("what broker %d has is not known: %w", broker, err)
		}
	}
	return all, nil
}

func (c *Cluster) sighting(ctx context.Context, broker int32, topic string) (sight, error) {
	// A broker that is frozen must not hold up for long what others have to do.
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout/4)
	defer cancel()
	s := sight{broker: broker}
	conn, err := c.conn(ctx, broker, slotAsk)
	if err != nil {
		return s, err
	}
	t, err := topicAt(ctx, conn, topic)
	if err != nil {
		return s, err
	}
	switch err := wire.CodeError(t.ErrorCode); {
	case errors.Is(err, cluster.ErrUnknownTopic):
		return s, nil
	case err != nil && !errors.Is(err, cluster.ErrUnavailable): // LEADER_NOT_AVAILABLE: it is there
		return s, err
	}
	s.id, s.partitions = t.TopicID, int32(len(t.Partitions))
	for i := range t.Partitions {
		if t.Partitions[i].Leader < 0 {
			s.leaderless++
		}
	}
	return s, nil
}

// topicAt is a topic as one broker knows it, with what we may do to it.
func topicAt(ctx context.Context, conn *wire.Conn, topic string) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	topics := answer.(*kmsg.MetadataResponse).Topics
	if len(topics) != 1 {
		return nil, errMissing
	}
	return &topics[0], nil
}

func shows(sights []sight, id cluster.TopicID) bool {
	return slices.ContainsFunc(sights, func(s sight) bool { return s.id == id })
}

func anyTopic(sights []sight) bool {
	return slices.ContainsFunc(sights, func(s sight) bool { return !s.id.IsZero() })
}

// Describe gives the topic's present id and all that Rebuild needs to make it again:
// its partition count, the replication factor that most of its partitions have (while
// replicas are being moved that counts the new ones too), and its explicit settings.
// Errors: ErrUnknownTopic.
func (c *Cluster) Describe(ctx context.Context, topic string) (cluster.TopicID, cluster.NewTopic, error) {
	was := cluster.NewTopic{Name: topic}
	for try := 1; ; try++ {
		id, err := c.describeOnce(ctx, &was)
		if err == nil || try == leaderTries || !moved(err) || !sleep(ctx, pause(try)) {
			if err != nil {
				return cluster.TopicID{}, cluster.NewTopic{}, fmt.Errorf("topic %s: %w", topic, err)
			}
			return id, was, nil
		}
	}
}

// describeOnce looks at the id before and after the settings, so that they are those of
// one topic.
func (c *Cluster) describeOnce(ctx context.Context, was *cluster.NewTopic) (cluster.TopicID, error) {
	before, err := c.freshTopic(ctx, was.Name)
	if err != nil {
		return cluster.TopicID{}, err
	}
	configs, err := c.TopicConfigs(ctx, []string{was.Name})
	if err == nil {
		err = configs[0].Err
	}
	if err != nil {
		return cluster.TopicID{}, err
	}
	after, err := c.freshTopic(ctx, was.Name)
	if err != nil {
		return cluster.TopicID{}, err
	}
	if before.ID != after.ID {
		return cluster.TopicID{}, fmt.Errorf("%w: the topic is being replaced", cluster.ErrUnavailable)
	}
	was.Partitions, was.ReplicationFactor = int32(len(after.Partitions)), usualReplicas(after.Partitions)
	was.Configs = configs[0].Configs
	slices.SortFunc(was.Configs, func(a, b cluster.TopicConfig) int { return cmp.Compare(a.Name, b.Name) })
	return after.ID, nil
}

func (c *Cluster) freshTopic(ctx context.Context, name string) (wire.TopicMetadata, error) {
	meta, err := c.client.Metadata(ctx, []string{name}, true)
	if err != nil {
		return wire.TopicMetadata{}, err
	}
	t, ok := meta.Topics[name]
	switch {
	case !ok:
		return t, cluster.ErrUnknownTopic
	case t.Err != nil:
		return t, t.Err
	case len(t.Partitions) == 0:
		return t, fmt.Errorf("%w: no partitions are shown", cluster.ErrUnavailable)
	}
	return t, nil
}

// usualReplicas is the most frequent number of replicas, the larger one of two.
func usualReplicas(partitions []wire.PartitionMetadata) int16 {
	count := map[int]int{}
	most := 0
	for i := range partitions {
		n := len(partitions[i].Replicas)
		count[n]++
		if count[n] > count[most] || count[n] == count[most] && n > most {
			most = n
		}
	}
	return int16(most)
}
