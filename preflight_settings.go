package mirror

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/preflight"
	"github.com/clustermirror/mirror/topics"
)

// offsets asks for the ends of logs, and puts each answer into its place.
func (s *survey) offsets(ctx context.Context, ps []cluster.Partition,
	ask func(context.Context, []cluster.Partition) ([]fetcher.OffsetsAnswer, error), put func(*preflight.Log, cluster.Offsets, error)) {
	if len(ps) == 0 {
		return
	}
	answers, err := ask(ctx, ps)
	for i, p := range ps {
		if l := &s.of[p.Topic].Logs[p.Partition]; err != nil {
			put(l, cluster.Offsets{}, err)
		} else {
			put(l, answers[i].Offsets, answers[i].Err)
		}
	}
}

// rehearse finds out which settings topics have, or would have, and whether the
// destination would take what the mirror is about to create and to change.
func (s *survey) rehearse(ctx context.Context) {
	if s.facts.Source.Err != nil && s.facts.Source.Inspection == nil || len(s.of) == 0 {
		return
	}
	exists, missing := s.split()
	here := s.settings(ctx, s.source.TopicConfigs, append(namesOf(exists), namesOf(missing)...))
	for _, t := range append(exists, missing...) {
		s.of[t.Name].Here = settingsOf(here[t.Name])
	}
	if s.facts.Destination.ID == "" {
		return
	}
	if settings, ok := s.destination.(topics.Settings); ok {
		s.rehearseChanges(ctx, settings, exists, here)
	}
	r, ok := s.destination.(topics.Rehearsal)
	if !ok || len(missing) == 0 {
		return
	}
	configs := make([]topics.ConfigsAnswer, len(missing))
	for i, t := range missing {
		configs[i] = here[t.Name]
	}
	for i, got := range topics.RehearseCreations(ctx, r, missing, configs, s.required()) {
		t := s.of[missing[i].Name]
		if configs[i].Err == nil { // else that is the finding
			t.Created = got.Err
		}
		if t.Factor = int(got.ReplicationFactor); got.Configs != nil {
			t.There = settingsOf(topics.ConfigsAnswer{Configs: got.Configs})
		}
	}
}

// split gives the mirror's topics, as the source describes them: those that are at the destination,
// and those that are to be created.
func (s *survey) split() (exists, missing []cluster.Topic) {
	for _, t := range s.here {
		switch is := s.of[t.Name]; {
		case is == nil:
		case is.Exists:
			exists = append(exists, t)
		default:
			missing = append(missing, t)
		}
	}
	return exists, missing
}

func namesOf(ts []cluster.Topic) []string {
	out := make([]string, len(ts))
	for i, t := range ts {
		out[i] = t.Name
	}
	return out
}

// settings asks for all settings of topics.
func (s *survey) settings(ctx context.Context, ask func(context.Context, []string) ([]topics.ConfigsAnswer, error), names []string) map[string]topics.ConfigsAnswer {
	of := make(map[string]topics.ConfigsAnswer, len(names))
	if len(names) == 0 {
		return of
	}
	answers, err := ask(ctx, names)
	for i, name := range names {
		if err != nil {
			of[name] = topics.ConfigsAnswer{Err: err}
		} else {
			of[name] = answers[i]
		}
	}
	return of
}

func settingsOf(a topics.ConfigsAnswer) preflight.Settings {
	out := preflight.Settings{Err: a.Err}
	for _, list := range [][]cluster.TopicConfig{a.Defaults, a.Configs} {
		for _, c := range list {
			if out.Values == nil {
				out.Values = map[string]string{}
			}
			out.Values[c.Name] = c.Value
		}
	}
	return out
}

// rehearseChanges compares topics that are on both sides, and asks for what is due.
func (s *survey) rehearseChanges(ctx context.Context, settings topics.Settings, exists []cluster.Topic, here map[string]topics.ConfigsAnswer) {
	there := s.settings(ctx, settings.TopicConfigs, namesOf(exists))
	var changes []topics.Changes
	for _, topic := range exists {
		t, source, destination := s.of[topic.Name], here[topic.Name], there[topic.Name]
		if t.There = settingsOf(destination); source.Err != nil || destination.Err != nil || !s.facts.Plan.Configs {
			continue
		}
		c := topics.Changes{Topic: topic.Name}
		for _, a := range topics.Compare(topic.Name, source, destination, s.required(), topics.Own{}).Alter {
			c.Changes = append(c.Changes, topics.Change{Name: a.Name, Value: a.To})
			t.Due = append(t.Due, a.Name)
			t.DueLasting = t.DueLasting || topics.Lasting(a.Name)
		}
		if len(c.Changes) > 0 {
			changes = append(changes, c)
		}
	}
	r, ok := s.destination.(topics.Rehearsal)
	if !ok || len(changes) == 0 {
		return
	}
	for i, err := range r.RehearseAlter(ctx, changes) {
		s.of[changes[i].Topic].Altered = err
	}
}
