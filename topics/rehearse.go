package topics

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// Rehearsal is the optional ability of a Sink to say what CreateTopics, and AlterTopics of
// Settings, would answer. Nothing is changed. Safe for concurrent use.
type Rehearsal interface {
	RehearseCreate(ctx context.Context, topics []cluster.NewTopic) []Rehearsed
	RehearseAlter(ctx context.Context, changes []Changes) []error
}

// Rehearsed is how a topic would come to be.
type Rehearsed struct {
	ReplicationFactor int16                 // 0: not told
	Configs           []cluster.TopicConfig // all that would hold; nil: not told
	Err               error                 // it would be refused
}

// RehearseCreations rehearses what a Syncer would create, as few requests as that. Answers
// are in the order of the topics, configs those of their source; what a source does not
// tell of is not asked about, and has its error.
func RehearseCreations(ctx context.Context, r Rehearsal, missing []cluster.Topic, configs []ConfigsAnswer, required []cluster.TopicConfig) []Rehearsed {
	out := make([]Rehearsed, len(missing))
	var wanted []creation
	index := map[string]int{}
	for i, t := range missing {
		if err := configs[i].Err; err != nil {
			out[i].Err = fmt.Errorf("source configs: %w", err)
			continue
		}
		index[t.Name] = i
		wanted = append(wanted, newCreation(t, configs[i].Configs, required))
	}
	for _, some := range inRequests(wanted) {
		news := make([]cluster.NewTopic, len(some))
		for i, c := range some {
			news[i] = c.NewTopic
		}
		for i, answer := range r.RehearseCreate(ctx, news) {
			out[index[some[i].Name]] = answer
		}
	}
	return out
}
