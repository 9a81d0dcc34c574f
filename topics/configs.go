package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// settling is how long a cluster may go on showing what was altered as it was before:
// brokers hear of it one after the other.
const settling = 10 * time.Second

// Configs keeps the settings of mirror topics in step. Safe for concurrent use.
type Configs struct {
	source      Source
	destination Settings
	owned       Owned
	required    []cluster.TopicConfig

	turn    chan struct{}        // capacity 1: one at a time
	own     map[string]Own       // as it is kept; nil: not loaded yet
	stale   bool                 // it has to be loaded again
	altered map[string]time.Time // by topic
}

// NewConfigs keeps settings in step whose overrides, once the mirror has set them, owned
// remembers. required are settings that the destination needs while it is mirrored to.
func NewConfigs(source Source, destination Settings, owned Owned, required []cluster.TopicConfig) *Configs {
	return &Configs{
		source: source, destination: destination, owned: owned, required: required,
		turn: make(chan struct{}, 1), altered: map[string]time.Time{},
	}
}

// A ConfigReport says what one round found and did.
type ConfigReport struct {
	Compared map[string]bool // topics that both sides have told of
	Altered  []Altered       // by topic and name
	// Refused are topics of which not all settings are in step, with the reason.
	Refused map[string]error
	// Lasting are those of them in which records could be lost, or be refused, for it.
	Lasting map[string]error
	Unknown []string // settings of the source that the destination does not know, by name
	// Differences are settings that no topic overrides, and that hold otherwise by default.
	Differences []Difference
}

func newReport() ConfigReport {
	return ConfigReport{Compared: map[string]bool{}, Refused: map[string]error{}, Lasting: map[string]error{}}
}

func (r *ConfigReport) refuse(topic string, lasting bool, err error) {
	r.Refused[topic] = errors.Join(r.Refused[topic], err)
	if lasting {
		r.Lasting[topic] = errors.Join(r.Lasting[topic], err)
	}
}

// Sync gives topics that are on both sides the source's settings. One topic, or one
// setting, that is refused keeps no other from its own; the error is for what concerns
// all of them.
func (c *Configs) Sync(ctx context.Context, names []string) (ConfigReport, error) {
	r := newReport()
	if len(names) == 0 {
		return r, nil
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return r, err
	}
	defer leave()
	theirs, err := c.source.TopicConfigs(ctx, names)
	if err != nil {
		return r, fmt.Errorf("source configs: %w", err)
	}
	ours, err := c.destination.TopicConfigs(ctx, names)
	if err != nil {
		return r, fmt.Errorf("destination configs: %w", err)
	}
	unknown, plans := map[string]bool{}, map[string]Comparison{}
	for i, name := range names {
		if err := errors.Join(prefixed("source", theirs[i].Err), prefixed("destination", ours[i].Err)); err != nil {
			if !errors.Is(err, cluster.ErrUnknownTopic) { // on its way, or gone: others say so
				r.refuse(name, true, fmt.Errorf("topic %s: configs: %w", name, err))
			}
			continue
		}
		r.Compared[name] = true
		p := Compare(name, theirs[i], ours[i], c.required, c.own[name])
		for _, u := range p.Unknown {
			unknown[u] = true
		}
		r.Differences = append(r.Differences, p.Differences...)
		plans[name] = p
	}
	r.Unknown, r.Differences = slices.Sorted(maps.Keys(unknown)), sum(r.Differences)
	return r, c.carryOut(ctx, plans, &r)
}

func prefixed(side string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", side, err)
}

// enter waits for its turn and has what is owned at hand.
func (c *Configs) enter(ctx context.Context) (leave func(), err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = func() { <-c.turn }
	if c.own == nil || c.stale {
		own, err := c.owned.Load(ctx)
		if err != nil {
			leave()
			return nil, fmt.Errorf("settings that are the mirror's doing: %w", err)
		}
		if c.own, c.stale = own, false; own == nil {
			c.own = map[string]Own{}
		}
	}
	return leave, nil
}

// Claim stores that the settings with which topics are about to be created are the
// mirror's doing.
func (c *Configs) Claim(ctx context.Context, news map[string]Own) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r := newReport()
	if err := c.keep(ctx, news, &r); err != nil {
		return err
	}
	for name := range news {
		c.altered[name] = time.Now()
	}
	return errors.Join(slices.Collect(maps.Values(r.Refused))...)
}

// PutBack takes from topics that leave the mirror what the destination required of them,
// and gives them the source's values, or their own from before. Those of which nothing is
// owed cost nothing. It can be repeated; what is refused is owed still.
func (c *Configs) PutBack(ctx context.Context, names []string) (ConfigReport, error) {
	r := newReport()
	leave, err := c.enter(ctx)
	if err != nil {
		return r, err
	}
	defer leave()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !c.owes(c.own[name]) })
	if len(names) == 0 {
		return r, nil
	}
	ours, err := c.destination.TopicConfigs(ctx, names)
	if err != nil {
		return r, fmt.Errorf("destination configs: %w", err)
	}
	now := map[string]Own{}
	var alter [][]Altered
	for i, name := range names {
		switch err := ours[i].Err; {
		case errors.Is(err, cluster.ErrUnknownTopic):
			now[name] = Own{} // it is gone
		case err != nil:
			r.refuse(name, false, fmt.Errorf("topic %s: destination configs: %w", name, err))
		default:
			var changes []Altered
			if changes, now[name] = PutBack(name, ours[i], c.required, c.own[name]); len(changes) > 0 {
				alter = append(alter, changes)
			}
		}
	}
	for name := range c.alter(ctx, alter, &r) {
		delete(now, name)
	}
	return r, c.keep(ctx, now, &r)
}

// owes reports whether something of a topic has to be put back.
func (c *Configs) owes(own Own) bool {
	return len(own.Was) > 0 || len(own.Then) > 0 || slices.ContainsFunc(c.required, func(r cluster.TopicConfig) bool {
		_, set := own.Set[r.Name]
		return set
	})
}
