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

// carryOut does what comparisons ask for: what is the mirror's doing is stored first.
func (c *Configs) carryOut(ctx context.Context, plans map[string]Comparison, r *ConfigReport) error {
	before, prior := make(map[string]Own, len(plans)), make(map[string]Own, len(plans))
	for name, p := range plans {
		before[name], prior[name] = p.Before, c.own[name]
	}
	if err := c.keep(ctx, before, r); err != nil {
		return err
	}
	maps.DeleteFunc(plans, func(name string, _ Comparison) bool { return r.Refused[name] != nil })
	var alter [][]Altered
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		if len(plans[name].Alter) > 0 {
			alter = append(alter, c.calmed(plans[name].Alter))
		}
	}
	failed := c.alter(ctx, alter, r)
	after := make(map[string]Own, len(plans))
	for name, p := range plans {
		after[name] = undone(p, prior[name], failed[name])
	}
	return c.keep(ctx, after, r)
}

// calmed are changes of a topic. When it was altered a moment ago they are not called the
// doing of somebody else: what was read may be how it was before.
func (c *Configs) calmed(alter []Altered) []Altered {
	if time.Since(c.altered[alter[0].Topic]) < settling {
		for i := range alter {
			alter[i].Drift = false
		}
	}
	return alter
}

// undone is what is the mirror's doing after some of the changes have failed. Those of
// which it is not known may have been made.
func undone(p Comparison, prior Own, failed map[string]error) Own {
	after := p.After.clone()
	for name, err := range failed {
		was, ours := prior.Set[name]
		if set, claimed := p.Before.Set[name]; claimed && !errors.Is(err, cluster.ErrRefused) && !errors.Is(err, cluster.ErrAuthorization) {
			was, ours = set, true
		}
		if ours {
			after.Set = with(after.Set, name, was)
		} else {
			delete(after.Set, name)
		}
		if own, ok := p.Before.Was[name]; ok {
			after.Was = with(after.Was, name, own)
		}
	}
	return after
}

// keep stores what is the mirror's doing. Topics of which another process has stored
// something since are refused, and looked up again the next time.
func (c *Configs) keep(ctx context.Context, now map[string]Own, r *ConfigReport) error {
	was, to := map[string]Own{}, map[string]Own{}
	for name, own := range now {
		if !own.Equal(c.own[name]) {
			was[name], to[name] = c.own[name], own
		}
	}
	if len(to) == 0 {
		return nil
	}
	refused, err := c.owned.Swap(ctx, was, to)
	if err != nil {
		c.stale = true
		return fmt.Errorf("storing which settings are the mirror's doing: %w", err)
	}
	maps.Copy(c.own, to)
	for _, name := range refused {
		c.stale = true
		r.refuse(name, true, fmt.Errorf("topic %s: configs: %w: another process has stored which are the mirror's doing", name, cluster.ErrUnavailable))
	}
	return nil
}

// alter makes changes, given by topic. Where the cluster refuses those of a topic, they
// are made one by one, so that one bad setting keeps no other from being made.
func (c *Configs) alter(ctx context.Context, byTopic [][]Altered, r *ConfigReport) (failed map[string]map[string]error) {
	failed = map[string]map[string]error{}
	single := c.attempt(ctx, byTopic, true, r, failed)
	for n := 0; ; n++ {
		var nth [][]Altered
		for _, alter := range single {
			if n < len(alter) {
				nth = append(nth, alter[n:n+1])
			}
		}
		if len(nth) == 0 {
			return failed
		}
		c.attempt(ctx, nth, false, r, failed)
	}
}

// attempt makes changes of many topics at once and gives those back that are to be made
// one by one.
func (c *Configs) attempt(ctx context.Context, byTopic [][]Altered, whole bool, r *ConfigReport, failed map[string]map[string]error) (single [][]Altered) {
	if len(byTopic) == 0 {
		return nil
	}
	changes := make([]Changes, len(byTopic))
	for i, alter := range byTopic {
		changes[i].Topic = alter[0].Topic
		for _, a := range alter {
			changes[i].Changes = append(changes[i].Changes, Change{a.Name, a.To})
		}
		c.altered[alter[0].Topic] = time.Now()
	}
	for i, err := range c.destination.AlterTopics(ctx, changes) {
		switch alter := byTopic[i]; {
		case err == nil:
			r.Altered = append(r.Altered, alter...)
		case whole && len(alter) > 1 && errors.Is(err, cluster.ErrRefused):
			single = append(single, alter)
		default:
			for _, a := range alter {
				if failed[a.Topic] == nil {
					failed[a.Topic] = map[string]error{}
				}
				failed[a.Topic][a.Name] = err
				r.refuse(a.Topic, lasting[a.Name], fmt.Errorf("topic %s: %v: %w", a.Topic, a, err))
			}
		}
	}
	return single
}

// String says what is to be, for people to read.
func (a Altered) String() string {
	if a.To == nil {
		return a.Name + " taken away"
	}
	return a.Name + "=" + *a.To
}
