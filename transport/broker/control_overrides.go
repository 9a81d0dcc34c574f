package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
)

// mirrored are the settings of a topic while it is mirrored here. With a larger
// min.insync.replicas the replicas that we take out of the in-sync set would stay
// eligible leaders (KIP-966), and would be elected when we die; so they would with
// unclean elections. The topic would be writable then, behind the mirror's back.
var mirrored = map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}

// Own are a topic's own values of the settings that are overridden while it is
// mirrored. Nil: it has none of its own, the cluster's default holds. It goes
// through encoding/json unharmed.
type Own map[string]*string

// Overrides keeps topics' own settings, by the topic's name, from before they are
// overridden until they are put back. It has to outlive the process. Safe for
// concurrent use.
type Overrides interface {
	// Load gives what was saved last of topics, without those of which there is nothing.
	Load(ctx context.Context, topics ...string) (map[string]Own, error)
	// Save returns when all of it is stored.
	Save(ctx context.Context, all map[string]Own) error
	// Delete forgets topics. Nothing to forget is no error.
	Delete(ctx context.Context, topics []string) error
	// Topics are those that settings are stored of.
	Topics(ctx context.Context) ([]string, error)
	// Missed gives the cuts that replicas have missed, as they were saved last.
	Missed(ctx context.Context) (map[string]Missed, error)
	// SaveMissed returns when all of it is stored. A topic without cuts is forgotten;
	// Delete forgets those of its topics as well.
	SaveMissed(ctx context.Context, all map[string]Missed) error
	// Lifted is from which producer id on those of the source have others, false when that
	// was never saved. It stays, whatever becomes of topics.
	Lifted(ctx context.Context) (from int64, ok bool, err error)
	// SaveLifted returns when it is stored.
	SaveLifted(ctx context.Context, from int64) error
}

// MemoryOverrides are forgotten with the process: for tests. The zero value is
// ready.
type MemoryOverrides struct {
	mu     sync.Mutex
	all    map[string]Own
	missed map[string]Missed
	lifted *int64
}

// Load is of Overrides.
func (m *MemoryOverrides) Load(_ context.Context, topics ...string) (map[string]Own, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return some(m.all, topics), nil
}

// some are copies of those of topics.
func some(all map[string]Own, topics []string) map[string]Own {
	out := make(map[string]Own)
	for _, topic := range topics {
		if own, ok := all[topic]; ok {
			out[topic] = maps.Clone(own)
		}
	}
	return out
}

// Save is of Overrides.
func (m *MemoryOverrides) Save(_ context.Context, all map[string]Own) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[string]Own)
	}
	for topic, own := range all {
		m.all[topic] = maps.Clone(own)
	}
	return nil
}

// Delete is of Overrides.
func (m *MemoryOverrides) Delete(_ context.Context, topics []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, topic := range topics {
		delete(m.all, topic)
		delete(m.missed, topic)
	}
	return nil
}

// Missed is of Overrides.
func (m *MemoryOverrides) Missed(context.Context) (map[string]Missed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cloneMissed(m.missed), nil
}

// SaveMissed is of Overrides.
func (m *MemoryOverrides) SaveMissed(_ context.Context, all map[string]Missed) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missed == nil {
		m.missed = make(map[string]Missed)
	}
	replaceMissed(m.missed, all)
	return nil
}

// Topics is of Overrides.
func (m *MemoryOverrides) Topics(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all)), nil
}

// Lifted is of Overrides.
func (m *MemoryOverrides) Lifted(context.Context) (from int64, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lifted == nil {
		return 0, false, nil
	}
	return *m.lifted, true, nil
}

// SaveLifted is of Overrides.
func (m *MemoryOverrides) SaveLifted(_ context.Context, from int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lifted = &from
	return nil
}

// ownOf are a topic's own values, as it has them now.
func ownOf(set map[string]string) Own {
	own := make(Own, len(mirrored))
	for key := range mirrored {
		own[key] = nil
		if v, ok := set[key]; ok {
			own[key] = &v
		}
	}
	return own
}

// change is one setting to be changed; a nil value takes it away.
type change struct {
	key   string
	value *string
}

// toMirrored are the changes that a topic needs before it is mirrored.
func toMirrored(set map[string]string) (out []change) {
	for _, key := range slices.Sorted(maps.Keys(mirrored)) {
		if want := mirrored[key]; set[key] != want {
			out = append(out, change{key, &want})
		}
	}
	return out
}

// toOwn are the changes that put a topic's own values back. What somebody else has
// changed meanwhile is not ours any more, and stays.
func toOwn(set map[string]string, own Own) (out []change) {
	for _, key := range slices.Sorted(maps.Keys(mirrored)) {
		value, known := own[key]
		if now, ok := set[key]; known && ok && now == mirrored[key] && (value == nil || *value != now) {
			out = append(out, change{key, value})
		}
	}
	return out
}

func topicConfig(i metalog.Image, topic string) map[string]string {
	return i.Config(metalog.Resource{Kind: metalog.TopicResource, Name: topic})
}

// override gives topics the settings of mirrored ones, their own ones being stored
// before. Topics that have them already cost nothing.
func (c *control) override(ctx context.Context, topics []string) map[string]error {
	image := c.m.log.Image()
	save, want := make(map[string]Own), make(map[string][]change)
	for _, topic := range topics {
		if changes := toMirrored(topicConfig(image, topic)); len(changes) > 0 {
			want[topic] = changes
		}
	}
	if len(want) == 0 {
		return nil
	}
	stored, err := c.overrides.Load(ctx, slices.Collect(maps.Keys(want))...)
	if err != nil {
		return failTopics(want, fmt.Errorf("loading the topic's own settings: %w", err))
	}
	for topic := range want {
		if _, ok := stored[topic]; !ok {
			save[topic] = ownOf(topicConfig(image, topic))
		}
	}
	if len(save) > 0 {
		if err := c.overrides.Save(ctx, save); err != nil {
			return failTopics(want, fmt.Errorf("storing the topic's own settings: %w", err))
		}
	}
	return c.configure(ctx, want)
}

func failTopics[T any](topics map[string]T, err error) map[string]error {
	failed := make(map[string]error, len(topics))
	for topic := range topics {
		failed[topic] = err
	}
	return failed
}

// putBack gives topics their own settings again, and forgets them.
func (c *control) putBack(ctx context.Context, topics []string) map[string]error {
	image, want := c.m.log.Image(), make(map[string][]change)
	stored, err := c.overrides.Load(ctx, topics...)
	if err != nil {
		failed := make(map[string]error)
		for _, topic := range topics {
			failed[topic] = fmt.Errorf("loading the topic's own settings: %w", err)
		}
		return failed
	}
	var known []string
	for topic, own := range stored {
		known = append(known, topic)
		if changes := toOwn(topicConfig(image, topic), own); len(changes) > 0 {
			want[topic] = changes
		}
	}
	failed := c.configure(ctx, want)
	done := slices.DeleteFunc(known, func(topic string) bool { return failed[topic] != nil })
	if len(done) > 0 {
		if err := c.overrides.Delete(ctx, done); err != nil {
			for _, topic := range done {
				failed[topic] = fmt.Errorf("forgetting the topic's own settings: %w", err)
			}
		}
	}
	return failed
}

// configure changes settings of topics and waits until the metadata log has them.
// A topic that is gone needs none.
func (c *control) configure(ctx context.Context, want map[string][]change) map[string]error {
	failed, link := make(map[string]error), &controller{quorum: c.m.quorum}
	defer link.drop()
	for len(want) > 0 {
		image := c.m.log.Image()
		maps.DeleteFunc(want, func(topic string, changes []change) bool { return configured(image, topic, changes) })
		if len(want) == 0 {
			break
		}
		not, err := alterConfigs(ctx, link, want)
		if ctx.Err() != nil || err != nil && notAuthorized(err) {
			err = errors.Join(err, ctx.Err())
			for topic := range want {
				failed[topic] = fmt.Errorf("changing settings of topic %s: %w", topic, err)
			}
			return failed
		}
		if err != nil {
			link.drop()
		}
		for topic, err := range not {
			if !passing(err) {
				failed[topic] = fmt.Errorf("changing settings of topic %s: %w", topic, err)
				delete(want, topic)
			}
		}
		bounded, cancel := context.WithTimeout(ctx, retryAct)
		_, _ = c.m.log.Wait(bounded, func(i metalog.Image) bool {
			for topic, changes := range want {
				if !configured(i, topic, changes) {
					return false
				}
			}
			return true
		})
		cancel()
	}
	return failed
}

// configured reports that the log has the changes, or the topic no more.
func configured(i metalog.Image, topic string, changes []change) bool {
	if _, ok := i.TopicNamed(topic); !ok {
		return true
	}
	set := topicConfig(i, topic)
	return !slices.ContainsFunc(changes, func(ch change) bool {
		now, ok := set[ch.key]
		return ok != (ch.value != nil) || ok && now != *ch.value
	})
}

// alterConfigs is IncrementalAlterConfigs; the map has the topics it refuses.
func alterConfigs(ctx context.Context, c *controller, want map[string][]change) (map[string]error, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, topic := range slices.Sorted(maps.Keys(want)) {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		for _, ch := range want[topic] {
			one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			one.Name, one.Value, one.Op = ch.key, ch.value, kmsg.IncrementalAlterConfigOpSet
			if ch.value == nil {
				one.Op = kmsg.IncrementalAlterConfigOpDelete
			}
			r.Configs = append(r.Configs, one)
		}
		req.Resources = append(req.Resources, r)
	}
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	not := make(map[string]error)
	for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if err := saying(r.ErrorCode, r.ErrorMessage); err != nil {
			not[r.ResourceName] = err
		}
	}
	return not, nil
}
