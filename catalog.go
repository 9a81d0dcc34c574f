package mirror

import (
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// catalog is what is known of the mirror's topics.
type catalog struct {
	mu     sync.Mutex
	filter *topics.Filter
	topics map[string]*entry
	// stops are filter entries whose stop was asked for before anything was known
	// of such topics. They are looked for at the destination: the source may be dead.
	stops []string

	// fresh are filter entries of topics whose copies begin where Options.Start says: all
	// when there is no record of the mirror, and what operators start, each until a look
	// has been made for it.
	fresh []string

	refused map[string]error
	missing []string
	source  string // cluster ids, pinned at first contact
	dest    string
	loaded  chan struct{} // closed when the topics on record are in
}

// entry is one topic of the mirror.
type entry struct {
	topic  cluster.Topic // the source's description
	absent time.Time     // since when looks did not find it at the source; zero when it is there
	gone   bool          // reported as gone
	stored bool          // known from the store only: no look has found it yet
}

// load notes the topics that there are records of.
func (c *catalog) load(records []coordinator.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		if c.topics == nil {
			c.topics = map[string]*entry{}
		}
		e := c.topics[r.Partition.Topic]
		if e == nil {
			e = &entry{topic: cluster.Topic{Name: r.Partition.Topic, ID: r.TopicID}, stored: true}
			c.topics[r.Partition.Topic] = e
		}
		if e.stored {
			e.topic.Partitions = max(e.topic.Partitions, r.Partition.Partition+1)
		}
	}
	if len(records) == 0 {
		c.fresh = append(c.fresh, ".*")
	}
	close(c.loaded)
}

// partitions of a topic.
func partitionsOf(t cluster.Topic) []cluster.Partition {
	ps := make([]cluster.Partition, t.Partitions)
	for i := range ps {
		ps[i] = cluster.Partition{Topic: t.Name, Partition: int32(i)}
	}
	return ps
}

// names of all known topics, sorted.
func (c *catalog) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, 0, len(c.topics))
	for n := range c.topics {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (c *catalog) get(name string) (cluster.Topic, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.topics[name]
	if !ok {
		return cluster.Topic{}, false
	}
	return e.topic, true
}

// freshNow are the entries of topics that do not count as found later.
func (c *catalog) freshNow() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fresh)
}

// later reports whether a topic that is about to be noted, or partitions of it, are found
// later than the mirror, or their start, began.
func (c *catalog) later(name string, fresh []string) bool {
	_, known := c.get(name)
	return known || !matches(fresh, name)
}

// matches reports whether any of the entries does.
func matches(entries []string, name string) bool {
	hit, err := topics.Select(entries, []string{name})
	return err == nil && len(entries) > 0 && len(hit) > 0 // no entries select everything
}

// looked ends a look for the topics of entries. Those that were found and refused
// remain fresh.
func (c *catalog) looked(fresh []string, refused map[string]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh = slices.DeleteFunc(c.fresh, func(e string) bool { return slices.Contains(fresh, e) })
	for name := range refused {
		if matches(fresh, name) && c.topics[name] == nil {
			c.fresh = append(c.fresh, name)
		}
	}
}

// put notes a topic and reports whether it was not known, or had another id or
// another number of partitions.
func (c *catalog) put(t cluster.Topic) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.note(t)
}

// note is put under the lock.
func (c *catalog) note(t cluster.Topic) (changed bool) {
	if c.topics == nil {
		c.topics = map[string]*entry{}
	}
	e := c.topics[t.Name]
	if e == nil {
		c.topics[t.Name] = &entry{topic: t}
		return true
	}
	e.absent, e.gone = time.Time{}, false
	changed = e.stored || e.topic.ID != t.ID || e.topic.Partitions != t.Partitions
	e.topic, e.stored = t, false
	return changed
}

// seen notes the outcome of a look and gives the topics that were absent from
// the source in two looks that were apart.
func (c *catalog) seen(res topics.Result, at time.Time, apart time.Duration) (gone []cluster.Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.missing = res.Refused, res.Missing
	there := map[string]bool{}
	for _, t := range res.Ready {
		there[t.Name] = true
	}
	for name, e := range c.topics {
		if there[name] || res.Refused[name] != nil || !c.filter.Matches(name) {
			e.absent, e.gone = time.Time{}, false
			continue
		}
		if e.absent.IsZero() {
			e.absent = at
		}
		if at.Sub(e.absent) >= apart && !e.gone {
			e.gone = true
			gone = append(gone, e.topic)
		}
	}
	return gone
}

// pin notes cluster ids and gives those that were pinned before.
func (c *catalog) pin(source, dest string) (string, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source == "" {
		c.source = source
	}
	if c.dest == "" {
		c.dest = dest
	}
	return c.source, c.dest
}

// pick selects known topics by filter entries. Literal entries that are not
// known come back apart.
func (c *catalog) pick(entries []string) (known, unknown []string, err error) {
	names := c.names()
	known, err = topics.Select(entries, names)
	for _, e := range entries {
		if topics.Literal(e) && !slices.Contains(names, e) {
			unknown = append(unknown, e)
		}
	}
	return known, unknown, err
}

// stop excludes names, and keeps entries to be looked for at the destination.
// Before anything is known, the entries themselves are excluded.
func (c *catalog) stop(entries, names []string, running bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !running {
		names = append(names, entries...)
	}
	if err := c.filter.Exclude(names...); err != nil {
		return err
	}
	for _, e := range entries {
		if c.topics[e] == nil && !slices.Contains(c.stops, e) {
			c.stops = append(c.stops, e)
		}
	}
	return nil
}
