package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topics lists every topic the cluster shows us, by name.
func (c *Cluster) Topics(ctx context.Context) ([]cluster.Topic, error) {
	meta, err := c.client.Metadata(ctx, nil, true)
	if err != nil {
		return nil, err
	}
	all := make([]cluster.Topic, 0, len(meta.Topics))
	for _, t := range meta.Topics {
		if t.Err != nil && len(t.Partitions) == 0 {
			c.cfg.Logger.WarnContext(ctx, "topic left out", "topic", t.Name, "error", t.Err)
			continue
		}
		all = append(all, cluster.Topic{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions)), Internal: t.Internal})
	}
	slices.SortFunc(all, func(a, b cluster.Topic) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// defaultsVersion is the first CreateTopics that takes the cluster's defaults.
const defaultsVersion = 4

// CreateTopics creates topics and returns when their leaders are known.
func (c *Cluster) CreateTopics(ctx context.Context, wanted []cluster.NewTopic) []error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RequestTimeout)
	defer cancel()
	errs := make([]error, len(wanted))
	if len(wanted) == 0 {
		return errs
	}
	c.askCreate(ctx, wanted, errs, false, nil)
	c.awaitLeaders(ctx, wanted, errs)
	return errs
}

const notController = wire.Code(41)

// askCreate asks the controller to create topics, or only whether it would (dry).
// answered, where it is not nil, is called for each that is not refused.
func (c *Cluster) askCreate(ctx context.Context, wanted []cluster.NewTopic, errs []error, dry bool, answered func(i int, t *kmsg.CreateTopicsResponseTopic)) {
	for try := range leaderTries {
		if try > 0 && !sleep(ctx, pause(try)) {
			break
		}
		if err := c.createRequest(ctx, wanted, errs, dry, answered); err != nil {
			for i := range errs {
				errs[i] = err
			}
		}
		// NOT_CONTROLLER answers every topic alike, before anything is done.
		if !errors.Is(errs[0], notController) {
			break
		}
	}
}

func (c *Cluster) createOnce(ctx context.Context, wanted []cluster.NewTopic, errs []error) error {
	return c.createRequest(ctx, wanted, errs, false, nil)
}

func (c *Cluster) createRequest(ctx context.Context, wanted []cluster.NewTopic, errs []error, dry bool, answered func(i int, t *kmsg.CreateTopicsResponseTopic)) error {
	conn, err := c.client.Controller(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = dry
	req.TimeoutMillis = int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/4).Milliseconds())
	index := make(map[string]int, len(wanted))
	for i, w := range wanted {
		if w.ReplicationFactor < 0 && conn.MaxVersion(req.Key()) < defaultsVersion {
			return fmt.Errorf("%w: the cluster is too old for a default replication factor", errors.ErrUnsupported)
		}
		index[w.Name], errs[i] = i, errMissing
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = w.Name, w.Partitions, w.ReplicationFactor
		for _, s := range w.Configs {
			e := kmsg.NewCreateTopicsRequestTopicConfig()
			e.Name, e.Value = s.Name, &s.Value
			t.Configs = append(t.Configs, e)
		}
		req.Topics = append(req.Topics, t)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	topics := answer.(*kmsg.CreateTopicsResponse).Topics
	for k := range topics {
		t := &topics[k]
		i, ok := index[t.Topic]
		if !ok {
			continue
		}
		if errs[i] = needing("CREATE on the topic or the cluster", saying(t.ErrorCode, t.ErrorMessage)); errs[i] != nil {
			errs[i] = fmt.Errorf("topic %s: %w", t.Topic, errs[i])
			continue
		}
		if answered != nil {
			answered(i, t)
		}
	}
	return nil
}

// awaitLeaders polls metadata until the created topics can be used.
func (c *Cluster) awaitLeaders(ctx context.Context, wanted []cluster.NewTopic, errs []error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var left []string
		for i, w := range wanted {
			if errs[i] == nil {
				left = append(left, w.Name)
			}
		}
		if len(left) == 0 {
			return
		}
		meta, err := c.client.Metadata(ctx, left, true)
		if err == nil && !slices.ContainsFunc(wanted, func(w cluster.NewTopic) bool {
			return slices.Contains(left, w.Name) && !led(meta, w)
		}) {
			return
		}
		if !sleep(ctx, wait) {
			for i := range wanted {
				if errs[i] == nil && (meta == nil || !led(meta, wanted[i])) {
					errs[i] = fmt.Errorf("topic %s is created, its leaders are not known: %w", wanted[i].Name, cluster.ErrUnavailable)
				}
			}
			return
		}
	}
}

// led reports that every partition has a leader.
func led(meta *wire.Metadata, w cluster.NewTopic) bool {
	t, ok := meta.Topics[w.Name]
	return ok && t.Err == nil && (w.Partitions < 0 || len(t.Partitions) >= int(w.Partitions)) && len(t.Partitions) > 0 &&
		!slices.ContainsFunc(t.Partitions, func(p wire.PartitionMetadata) bool { return p.Leader.Broker < 0 })
}
