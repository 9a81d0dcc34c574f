package main

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// absent is a source that nobody has named: a failover needs none.
type absent struct{}

var errAbsent = fmt.Errorf("%w: no --source is given", cluster.ErrUnreachable)

func (absent) ID(context.Context) (string, error)                   { return "", errAbsent }
func (absent) Topics(context.Context) ([]cluster.Topic, error)      { return nil, errAbsent }
func (absent) Groups(context.Context) ([]cluster.Group, error)      { return nil, errAbsent }
func (absent) Open(context.Context, int32) (fetcher.Session, error) { return nil, errAbsent }

func (absent) TopicConfigs(context.Context, []string) ([]topics.ConfigsAnswer, error) {
	return nil, errAbsent
}

func (absent) Committed(context.Context, []string) ([]offsets.CommittedAnswer, error) {
	return nil, errAbsent
}

func (absent) Leaders(context.Context, []cluster.Partition, bool) ([]fetcher.LeaderAnswer, error) {
	return nil, errAbsent
}

func (absent) Offsets(context.Context, []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	return nil, errAbsent
}

func (absent) EpochEnds(context.Context, []fetcher.EpochQuery) ([]fetcher.EpochAnswer, error) {
	return nil, errAbsent
}

func (absent) Read(context.Context, cluster.Partition, int64, int32) ([]byte, error) {
	return nil, errAbsent
}
