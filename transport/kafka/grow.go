package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GrowTopics gives topics more partitions and returns when their leaders are known.
func (c *Cluster) GrowTopics(ctx context.Context, wanted []cluster.Topic) []error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RequestTimeout)
	defer cancel()
	errs := make([]error, len(wanted))
	if len(wanted) == 0 {
		return errs
	}
	for try := range leaderTries {
		if try > 0 && !sleep(ctx, pause(try)) {
			break
		}
		if err := c.growOnce(ctx, wanted, errs); err != nil {
			for i := range errs {
				errs[i] = err
			}
		}
		if !errors.Is(errs[0], notController) { // as with CreateTopics
			break
		}
	}
	grown := make([]cluster.NewTopic, len(wanted))
	for i, w := range wanted {
		grown[i] = cluster.NewTopic{Name: w.Name, Partitions: w.Partitions}
	}
	c.awaitLeaders(ctx, grown, errs)
	return errs
}

// invalidPartitions: the topic has as many already, or more.
const invalidPartitions = wire.Code(37)

func (c *Cluster) growOnce(ctx context.Context, wanted []cluster.Topic, errs []error) error {
	conn, err := c.client.Controller(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/4).Milliseconds())
	index := make(map[string]int, len(wanted))
	for i, w := range wanted {
		index[w.Name], errs[i] = i, errMissing
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = w.Name, w.Partitions
		req.Topics = append(req.Topics, t)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	var unsure []string
	for _, t := range answer.(*kmsg.CreatePartitionsResponse).Topics {
		i, ok := index[t.Topic]
		if !ok {
			continue
		}
		if errs[i] = needing("ALTER on the topic", saying(t.ErrorCode, t.ErrorMessage)); errs[i] != nil {
			if errors.Is(errs[i], invalidPartitions) {
				unsure = append(unsure, t.Topic)
			}
			errs[i] = fmt.Errorf("topic %s: %w", t.Topic, errs[i])
		}
	}
	if len(unsure) == 0 {
		return nil
	}
	meta, err := c.client.Metadata(ctx, unsure, true)
	if err != nil {
		return err
	}
	for _, name := range unsure {
		if i := index[name]; len(meta.Topics[name].Partitions) >= int(wanted[i].Partitions) {
			errs[i] = nil // an earlier request, or somebody else, was there first
		}
	}
	return nil
}
