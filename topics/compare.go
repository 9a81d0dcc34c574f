package topics

import (
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// An Altered is one setting of a topic at the destination that is to be changed, or was.
type Altered struct {
	Topic    string
	Name     string
	From, To *string // nil: no override, the cluster's default holds
	// Drift: the mirror had set it, and somebody has changed it since.
	Drift bool
}

// A Difference is a setting that holds at both sides by default, and otherwise: it is not
// copied.
type Difference struct {
	Name        string `json:"name"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Topics      int    `json:"topics"` // that have it so
}

// A Comparison says what has to be done so that a topic has the source's settings.
type Comparison struct {
	Alter []Altered // by name
	// Before is what has to be stored as the mirror's doing before anything is altered,
	// After what is once all of it was.
	Before, After Own
	Unknown       []string     // settings of the source that the destination does not know, by name
	Differences   []Difference // of this topic, as far as they are Lasting; by name
}

// Compare holds the settings of a topic at the destination against the source's: explicit
// overrides only. What the source does not override, and the mirror has not set, stays as
// it is. It is pure.
func Compare(topic string, source, destination ConfigsAnswer, required []cluster.TopicConfig, own Own) Comparison {
	c := comparison{topic: topic, have: destination.Configs, byDefault: destination.Defaults, own: own}
	c.After = own.clone()
	needed := values(required)
	want := map[string]string{}
	c.After.Then = nil
	for _, s := range source.Configs {
		_, overridden := needed[s.Name]
		switch {
		case !copied(s.Name):
		case overridden:
			c.After.Then = with(c.After.Then, s.Name, s.Value)
		case !c.knows(s.Name):
			c.Unknown = append(c.Unknown, s.Name)
		default:
			want[s.Name] = s.Value
		}
	}
	for name, value := range want {
		c.set(name, value)
	}
	for name, value := range needed {
		c.require(name, value)
	}
	c.Before = c.After.clone()
	c.release(want, needed)
	maps.DeleteFunc(c.After.Was, func(name, _ string) bool { _, ok := needed[name]; return !ok })
	c.Differences = differences(source, c)
	slices.SortFunc(c.Alter, func(a, b Altered) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(c.Unknown)
	return c.Comparison
}

type comparison struct {
	Comparison
	topic           string
	have, byDefault []cluster.TopicConfig
	own             Own
}

// find looks through settings: they are few.
func find(cs []cluster.TopicConfig, name string) (value string, ok bool) {
	for i := range cs {
		if cs[i].Name == name {
			return cs[i].Value, true
		}
	}
	return "", false
}

func (c *comparison) knows(name string) bool {
	_, explicit := find(c.have, name)
	_, known := find(c.byDefault, name)
	return explicit || known || len(c.byDefault) == 0 // it does not tell
}

func (c *comparison) set(name, value string) {
	have, explicit := find(c.have, name)
	set, ours := c.own.Set[name]
	if explicit && have == value {
		if ours { // of another value, when a crash came in between
			c.After.Set[name] = value
		}
		return
	}
	a := Altered{Topic: c.topic, Name: name, To: &value, Drift: ours && set == value}
	if explicit {
		a.From = &have
	}
	c.Alter = append(c.Alter, a)
	c.After.Set = with(c.After.Set, name, value)
}

// require sets what the destination needs, unless it holds already.
func (c *comparison) require(name, value string) {
	have, explicit := find(c.have, name)
	_, ours := c.own.Set[name]
	if byDefault, known := find(c.byDefault, name); !explicit && !ours && (known && byDefault == value || !c.knows(name)) {
		return
	}
	if explicit && !ours && have != value {
		c.After.Was = with(c.After.Was, name, have)
	}
	c.set(name, value)
}

// release takes away what the mirror has set and the source does not say any more. What
// somebody else has changed meanwhile is not the mirror's any more, and stays.
func (c *comparison) release(want, needed map[string]string) {
	for name, value := range c.own.Set {
		_, wanted := want[name]
		_, required := needed[name]
		if wanted || required {
			continue
		}
		delete(c.After.Set, name)
		back := c.own.after(name)
		if have, explicit := find(c.have, name); explicit && have == value && (back == nil || *back != have) {
			c.Alter = append(c.Alter, Altered{Topic: c.topic, Name: name, From: &have, To: back})
		} else {
			delete(c.Before.Set, name)
			delete(c.Before.Was, name)
		}
	}
}

// differences are settings that the source's topic has by default, and the destination's
// otherwise.
func differences(source ConfigsAnswer, c comparison) (out []Difference) {
	for _, s := range source.Defaults {
		if !lasting[s.Name] || !c.knows(s.Name) {
			continue
		}
		there, explicit := find(c.have, s.Name)
		switch value, ours := c.own.Set[s.Name]; {
		case explicit && ours && value == there: // about to be taken away
			continue
		case !explicit:
			there, _ = find(c.byDefault, s.Name)
		}
		if there != s.Value {
			out = append(out, Difference{Name: s.Name, Source: s.Value, Destination: there, Topics: 1})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// PutBack gives the changes by which a topic that leaves the mirror loses what the
// destination required of it, and what is the mirror's doing from then on. What somebody
// else has changed meanwhile stays. It is pure.
func PutBack(topic string, destination ConfigsAnswer, required []cluster.TopicConfig, own Own) (alter []Altered, after Own) {
	have, after := values(destination.Configs), own.clone()
	for _, r := range required {
		set, ours := own.Set[r.Name]
		_, copied := own.Then[r.Name]
		delete(after.Set, r.Name)
		there, explicit := have[r.Name]
		switch {
		case !ours && !copied, ours && (!explicit || there != set), !ours && explicit && there != r.Value:
			continue
		}
		a := Altered{Topic: topic, Name: r.Name, To: own.after(r.Name)}
		if explicit {
			a.From = &there
		}
		if !same(a.From, a.To) {
			alter = append(alter, a)
		}
	}
	after.Was, after.Then = nil, nil
	slices.SortFunc(alter, func(a, b Altered) int { return strings.Compare(a.Name, b.Name) })
	return alter, after
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// sum adds differences up over topics.
func sum(all []Difference) []Difference {
	counts := map[Difference]int{}
	for _, d := range all {
		n := d.Topics
		d.Topics = 0
		counts[d] += n
	}
	out := make([]Difference, 0, len(counts))
	for _, d := range slices.SortedFunc(maps.Keys(counts), func(a, b Difference) int {
		return strings.Compare(a.Name+"\x00"+a.Source+"\x00"+a.Destination, b.Name+"\x00"+b.Source+"\x00"+b.Destination)
	}) {
		n := counts[d]
		d.Topics = n
		out = append(out, d)
	}
	return out
}
