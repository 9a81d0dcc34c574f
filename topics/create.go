package topics

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// createRecords bounds how many partitions and settings one request creates: a cluster
// refuses more than ten thousand at once.
const createRecords = 2000

// A creation is a topic to be created, and whose doing its settings are.
type creation struct {
	source cluster.Topic
	cluster.NewTopic
	own Own
}

// records is how many the cluster writes for it.
func (c creation) records() int { return 1 + int(c.Partitions) + len(c.Configs) }

func newCreation(t cluster.Topic, configs, required []cluster.TopicConfig) creation {
	n := creation{source: t, NewTopic: cluster.NewTopic{Name: t.Name, Partitions: t.Partitions, ReplicationFactor: -1}}
	n.Configs, n.own = MirrorConfigs(configs, required)
	return n
}

// inRequests cuts creations into what one request takes.
func inRequests(all []creation) (requests [][]creation) {
	n := createRecords // none is open
	for _, c := range all {
		if n += c.records(); n > createRecords {
			n, requests = c.records(), append(requests, nil)
		}
		last := &requests[len(requests)-1]
		*last = append(*last, c)
	}
	return requests
}

func (s Syncer) create(ctx context.Context, missing []cluster.Topic, configs []ConfigsAnswer, res *Result) {
	var wanted []creation
	for i, t := range missing {
		if err := configs[i].Err; err != nil {
			// Without its settings a topic could delete old records on arrival.
			res.Refused[t.Name] = fmt.Errorf("topic %s: source configs: %w", t.Name, err)
			continue
		}
		wanted = append(wanted, newCreation(t, configs[i].Configs, s.Required))
	}
	for _, some := range inRequests(wanted) {
		s.createSome(ctx, some, res)
	}
}

// createSome creates what one request takes. Topics with a setting that the cluster does
// not know, or not so, are created without the source's: each is set for itself later.
func (s Syncer) createSome(ctx context.Context, some []creation, res *Result) {
	var bare []creation
	for i, err := range s.request(ctx, some) {
		if c := some[i]; errors.Is(err, cluster.ErrInvalidConfig) && len(c.Configs) > len(s.Required) {
			c.Configs, c.own = MirrorConfigs(nil, s.Required)
			bare = append(bare, c)
			continue
		}
		res.created(some[i], err)
	}
	if len(bare) == 0 {
		return
	}
	for i, err := range s.request(ctx, bare) {
		if res.created(bare[i], err); err == nil {
			res.Bare = append(res.Bare, bare[i].Name)
		}
	}
}

func (s Syncer) request(ctx context.Context, some []creation) []error {
	news, owned := make([]cluster.NewTopic, len(some)), make(map[string]Own, len(some))
	for i, c := range some {
		news[i], owned[c.Name] = c.NewTopic, c.own
	}
	if s.Claim != nil {
		if err := s.Claim(ctx, owned); err != nil {
			errs := make([]error, len(some))
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
	}
	return s.Destination.CreateTopics(ctx, news)
}

func (r *Result) created(c creation, err error) {
	if err != nil { // also when somebody was faster: it is compared at the next sync
		r.Refused[c.Name] = fmt.Errorf("topic %s: create: %w", c.Name, err)
		return
	}
	r.Created = append(r.Created, c.Name)
	r.Ready = append(r.Ready, c.source)
}
