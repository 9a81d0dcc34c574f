package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	tooManyReplicas = wire.Code(38) // INVALID_REPLICATION_FACTOR
	notController   = wire.Code(41)
	// lookTries: a topic that was just created is not known everywhere at once.
	lookTries = 3
)

// find looks the topic up; nil when there is none.
func (s *Store) find(ctx context.Context) (*wire.TopicMetadata, error) {
	for try := 0; ; try++ {
		meta, err := s.metadata(ctx, []string{s.cfg.Topic}, true, s.cfg.RequestTimeout)
		if err != nil {
			return nil, err
		}
		t, ok := meta.Topics[s.cfg.Topic]
		switch {
		case !ok, errors.Is(t.Err, cluster.ErrUnknownTopic):
			if try+1 == lookTries {
				return nil, nil
			}
		case t.Err != nil && !errors.Is(t.Err, cluster.ErrUnavailable):
			return nil, t.Err
		case len(t.Partitions) > 0:
			return &t, nil
		}
		if !sleep(ctx, pause(try)) {
			return nil, fmt.Errorf("%w: %w", cluster.ErrTimeout, ctx.Err())
		}
	}
}

// create makes the topic. That another did so meanwhile is no error.
func (s *Store) create(ctx context.Context) error {
	meta, err := s.metadata(ctx, []string{}, true, s.cfg.RequestTimeout)
	if err != nil {
		return err
	}
	replicas := s.cfg.ReplicationFactor
	if replicas == 0 {
		replicas = int16(min(maxReplicas, max(1, len(meta.Brokers))))
	}
	for try := 0; ; try++ {
		err := s.createOnce(ctx, replicas)
		switch {
		case err == nil:
			s.cfg.Logger.Info("state topic created", "topic", s.cfg.Topic, "partitions", s.cfg.Partitions, "replicas", replicas)
			return nil
		case errors.Is(err, cluster.ErrTopicExists):
			return nil
		case errors.Is(err, tooManyReplicas) && s.cfg.ReplicationFactor == 0 && replicas > 1:
			replicas-- // not every broker takes replicas: one may be fenced, or cordoned (KIP-1066)
			continue
		case !errors.Is(err, notController):
			return err
		}
		s.client.Stale()
		if !sleep(ctx, pause(try)) {
			return err
		}
	}
}

// settings are those the topic is created with. A broker's clock stamps the records:
// one of ours that is wrong is no trouble then. The lag keeps what was written just now
// from compaction, for those who are reading it.
func settings(replicas int16) [][2]string {
	return [][2]string{
		{"cleanup.policy", "compact"},
		{"min.insync.replicas", strconv.Itoa(max(1, int(replicas)-1))},
		{"message.timestamp.type", "LogAppendTime"},
		{"min.compaction.lag.ms", "60000"},
		{"segment.bytes", strconv.Itoa(64 << 20)},
		{"unclean.leader.election.enable", "false"},
	}
}

func (s *Store) createOnce(ctx context.Context, replicas int16) error {
	conn, err := s.client.Controller(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = s.timeoutMillis()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = s.cfg.Topic, s.cfg.Partitions, replicas
	for _, kv := range settings(replicas) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = kv[0], &kv[1]
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range answer.(*kmsg.CreateTopicsResponse).Topics {
		return saying(t.ErrorCode, t.ErrorMessage)
	}
	return errMissing
}

// timeoutMillis is what brokers are given for a request, less than we wait for it.
func (s *Store) timeoutMillis() int32 { return int32(s.cfg.RequestTimeout.Milliseconds() * 3 / 8) }

// check refuses a topic that would lose state. Who may not read its settings is
// trusted to have made it well.
func (s *Store) check(ctx context.Context) error {
	conn, err := s.client.Any(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, s.cfg.Topic, []string{"cleanup.policy"}
	req.Resources = append(req.Resources, r)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	for _, r := range answer.(*kmsg.DescribeConfigsResponse).Resources {
		err := saying(r.ErrorCode, r.ErrorMessage)
		if errors.Is(err, cluster.ErrAuthorization) {
			s.cfg.Logger.Warn("settings of the state topic may not be read", "topic", s.cfg.Topic, "err", err)
			return nil
		}
		if err != nil {
			return err
		}
		for _, c := range r.Configs {
			if c.Name == "cleanup.policy" && c.Value != nil {
				return checkPolicy(*c.Value)
			}
		}
	}
	return fmt.Errorf("%w: the broker does not show cleanup.policy", cluster.ErrRefused)
}

func checkPolicy(policy string) error {
	compact, deletes := false, false
	for _, p := range strings.Split(policy, ",") {
		compact = compact || strings.TrimSpace(p) == "compact"
		deletes = deletes || strings.TrimSpace(p) == "delete"
	}
	if compact && !deletes {
		return nil
	}
	return fmt.Errorf("%w: cleanup.policy is %q and must be \"compact\", or state would be lost", cluster.ErrRefused, policy)
}

// awaitLeaders waits until every partition of a topic that was just created is led.
func (s *Store) awaitLeaders(ctx context.Context) (*wire.TopicMetadata, error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		meta, err := s.metadata(ctx, []string{s.cfg.Topic}, true, s.cfg.RequestTimeout)
		if err != nil {
			return nil, err
		}
		if t, ok := meta.Topics[s.cfg.Topic]; ok && t.Err == nil && led(t.Partitions) {
			return &t, nil
		}
		if !sleep(ctx, wait) {
			return nil, fmt.Errorf("%w: created, its leaders are not known: %w", cluster.ErrUnavailable, ctx.Err())
		}
	}
}

func led(parts []wire.PartitionMetadata) bool {
	for _, p := range parts {
		if p.Leader.Broker < 0 {
			return false
		}
	}
	return len(parts) > 0
}

// saying is Kafka's error code with Kafka's own words where it sent any.
func saying(code int16, message *string) error {
	err := wire.CodeError(code)
	if err == nil || message == nil || *message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *message)
}
