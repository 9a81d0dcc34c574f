// Package topics keeps the destination's topics in step with the source's:
// which ones belong to a mirror, which are missing, with which settings they
// are created.
package topics

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
)

// Source is the cluster topics are read from. Safe for concurrent use.
type Source interface {
	// Topics lists every topic the cluster shows us.
	Topics(ctx context.Context) ([]cluster.Topic, error)
	// TopicConfigs gives the explicit overrides of topics, in the order asked, and apart
	// from them what holds by default.
	TopicConfigs(ctx context.Context, names []string) ([]ConfigsAnswer, error)
}

// ConfigsAnswer answers one topic of TopicConfigs.
type ConfigsAnswer struct {
	Configs []cluster.TopicConfig
	// Defaults are all other settings that the cluster knows, as they hold for this topic;
	// nil where it does not tell.
	Defaults []cluster.TopicConfig
	Err      error
}

// Changes are settings of one topic that are to be changed.
type Changes struct {
	Topic   string
	Changes []Change
}

// A Change is one setting.
type Change struct {
	Name  string
	Value *string // nil: the override is taken away, the cluster's default holds
}

// Sink is the cluster topics are created on. Safe for concurrent use.
type Sink interface {
	Topics(ctx context.Context) ([]cluster.Topic, error)
	// CreateTopics creates topics in one request and returns when the leaders of
	// their partitions are known; the errors are in the order of the topics, nil
	// for success. A topic that is there already has cluster.ErrTopicExists.
	CreateTopics(ctx context.Context, topics []cluster.NewTopic) []error
	// GrowTopics brings topics to as many partitions as Partitions says, and returns
	// when the leaders of all are known; the errors are in the order of the topics. One
	// that has as many, or more, stays as it is.
	GrowTopics(ctx context.Context, topics []cluster.Topic) []error
}

// Settings is the optional ability of a destination to have topics with settings. Safe for
// concurrent use.
type Settings interface {
	// TopicConfigs as in Source.
	TopicConfigs(ctx context.Context, names []string) ([]ConfigsAnswer, error)
	// AlterTopics changes settings, many topics in a request; what is not named stays. Of a
	// topic either all changes are made or none; the errors are in the order of the topics,
	// cluster.ErrInvalidConfig for a setting that the cluster does not know, or not so.
	AlterTopics(ctx context.Context, changes []Changes) []error
}
