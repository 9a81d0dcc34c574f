package mirror

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/preflight"
	"github.com/clustermirror/mirror/topics"
)

// joiner is the optional ability of a destination that is to be joined as a broker: to say
// why that would be refused, without doing it.
type joiner interface {
	Joinable(ctx context.Context) []error
}

// Preflight says what would go wrong if a mirror with these options were run: what cannot
// be reached, which permissions are missing, which topics are in the way, which limits
// differ. It only asks: nothing is changed on either cluster, nor in the store. The ends
// need not run, and remain the caller's. A cluster that does not answer is a finding and
// keeps nothing else from being looked at. The error is for bad options, as New's, or the
// end of ctx.
func Preflight(ctx context.Context, name string, source Source, destination Destination, opts *Options) (*preflight.Report, error) {
	m, err := New(name, source, destination, opts)
	if err != nil {
		return nil, err
	}
	return m.preflight(ctx)
}

// preflight is Preflight of a mirror that does not run.
func (m *Mirror) preflight(ctx context.Context) (*preflight.Report, error) {
	s := &survey{Mirror: m, facts: preflight.Facts{Mirror: m.name}}
	s.facts.Source.Pinned, s.facts.Destination.Pinned = m.catalog.pin("", "")
	s.plan()
	s.contact(ctx)
	s.choose()
	s.look(ctx)
	s.rehearse(ctx)
	if err := ctx.Err(); err != nil {
		return nil, m.fault("preflight", err)
	}
	return preflight.Judge(s.facts), nil
}

// survey gathers the facts of a Preflight. Its Mirror never runs: it knows the options and
// what the ends can do.
type survey struct {
	*Mirror
	facts       preflight.Facts
	here, there []cluster.Topic // all topics of each side
	chosen      topics.Plan
	of          map[string]*preflight.Topic // into facts.Topics
}

// plan is what the options ask for.
func (s *survey) plan() {
	p := &s.facts.Plan
	p.Configs, p.Groups, p.ACLs = s.configs != nil && !s.opts.NoConfigs, !s.opts.NoGroups, s.opts.ACLs.Sync
	p.Guard, p.Cuts = s.opts.Guard.On, s.traits.Truncation != fetcher.TruncateNever
	if in, ok := s.opts.Store.(coordinator.InTopic); ok {
		p.StateTopic = in.StateTopic()
	}
	if in, ok := s.opts.Positions.(coordinator.InTopic); ok {
		p.PeerTopic = in.StateTopic()
	}
	_, joins := s.destination.(joiner)
	p.Join = joins && s.traits.ControlBatches
}

// atOnce does something at each side, at once.
func atOnce(source, destination func()) {
	var wg sync.WaitGroup
	wg.Go(source)
	wg.Go(destination)
	wg.Wait()
}

// contact asks each side who it is and which topics it has.
func (s *survey) contact(ctx context.Context) {
	first := func(c *preflight.Cluster, id func(context.Context) (string, error), list func(context.Context) ([]cluster.Topic, error)) (all []cluster.Topic) {
		if c.ID, c.Err = id(ctx); c.Err == nil {
			all, c.Err = list(ctx)
		}
		return all
	}
	atOnce(func() { s.here = first(&s.facts.Source, s.source.ID, s.source.Topics) },
		func() { s.there = first(&s.facts.Destination, s.destination.ID, s.destination.Topics) })
}

// choose finds the topics of the mirror.
func (s *survey) choose() {
	s.chosen = topics.Diff(s.here, s.there, s.catalog.filter)
	s.of, s.facts.Missing = map[string]*preflight.Topic{}, s.chosen.Missing
	there := make(map[string]cluster.Topic, len(s.there))
	for _, t := range s.there {
		there[t.Name] = t
	}
	for _, t := range s.here {
		if t.Internal || !s.catalog.filter.Matches(t.Name) {
			continue
		}
		d, exists := there[t.Name]
		s.facts.Topics = append(s.facts.Topics, preflight.Topic{
			Name: t.Name, Partitions: t.Partitions, Exists: exists, TherePartitions: d.Partitions,
			Logs: make([]preflight.Log, t.Partitions),
		})
	}
	for i := range s.facts.Topics {
		s.of[s.facts.Topics[i].Name] = &s.facts.Topics[i]
	}
}

// names are the topics that are asked about by name.
func (s *survey) names(and ...string) []string {
	all := slices.Clone(s.chosen.Missing)
	for i := range s.facts.Topics {
		all = append(all, s.facts.Topics[i].Name)
	}
	for _, name := range and {
		if name != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// look asks everything that is not about changes.
func (s *survey) look(ctx context.Context) {
	s.record(ctx)
	s.sourceGroups(ctx)
	here, there := s.partitions()
	atOnce(func() {
		if f := &s.facts.Source; f.Err == nil {
			inspect(ctx, f, s.source, s.names(s.facts.Plan.PeerTopic), nil)
			s.offsets(ctx, here, s.source.Offsets, func(l *preflight.Log, o cluster.Offsets, err error) { l.Here, l.HereErr = o, err })
		}
	}, func() {
		if f := &s.facts.Destination; f.Err == nil {
			inspect(ctx, f, s.destination, s.names(s.facts.Plan.StateTopic), s.facts.Source.Groups)
			s.offsets(ctx, there, s.destination.Offsets, func(l *preflight.Log, o cluster.Offsets, err error) { l.There, l.ThereErr = o, err })
			if j, ok := s.destination.(joiner); ok {
				s.facts.Plan.JoinErrs = j.Joinable(ctx)
			}
		}
	})
	for _, t := range s.of {
		if in := s.facts.Destination.Inspection; in != nil {
			t.Factor = in.Topics[t.Name].Factor
		}
	}
	s.peered(ctx, here)
}

// inspect asks a cluster that can tell. What it could not tell is an error of the cluster.
func inspect(ctx context.Context, c *preflight.Cluster, end any, names, groups []string) {
	if i, ok := end.(preflight.Inspector); ok {
		c.Inspection, c.Err = i.Inspect(ctx, names, groups)
	}
}

// partitions are those that both sides are asked about: at the destination those that are there.
func (s *survey) partitions() (here, there []cluster.Partition) {
	for i := range s.facts.Topics {
		t := &s.facts.Topics[i]
		for n := range t.Partitions {
			p := cluster.Partition{Topic: t.Name, Partition: n}
			if here = append(here, p); n < t.TherePartitions {
				there = append(there, p)
			}
		}
	}
	return here, there
}

// record is what the mirror has done before, as its store says.
func (s *survey) record(ctx context.Context) {
	if s.facts.Destination.Err != nil && s.facts.Plan.StateTopic != "" {
		return // it lies there
	}
	records, err := s.opts.Store.Load(ctx, s.name)
	if s.facts.RecordErr = err; err != nil {
		return
	}
	s.facts.Recorded = len(records) > 0
	for _, r := range records {
		if t := s.of[r.Partition.Topic]; t != nil && r.Partition.Partition < t.Partitions {
			l := &t.Logs[r.Partition.Partition]
			if l.Ours = r.Appended; r.HasPosition {
				l.Common = r.Position.Offset
			}
		}
	}
}

func (s *survey) sourceGroups(ctx context.Context) {
	c := &s.facts.Source
	if c.Err != nil || s.opts.NoGroups {
		return
	}
	groups, err := s.source.Groups(ctx)
	c.GroupsErr = err
	for _, g := range groups {
		if s.groups.filter.Includes(g.Name) {
			c.Groups = append(c.Groups, g.Name)
		}
	}
}

// peered asks what mirrors the other way have left at the source.
func (s *survey) peered(ctx context.Context, ps []cluster.Partition) {
	id := s.facts.Destination.ID
	if s.can.positions == nil || id == "" || s.facts.Source.ID == "" || len(ps) == 0 {
		return
	}
	answers, err := s.can.positions.Positions(ctx, id, ps)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if s.facts.PeerErr = err; err != nil {
		return
	}
	for i, p := range ps {
		t := s.of[p.Topic]
		if t.Peer == nil {
			t.Peer = barred(answers[i], id)
		}
		if l := &t.Logs[p.Partition]; answers[i].Found {
			l.Ours, l.Back = true, true
			l.Common = max(l.Common, answers[i].Position.Offset)
		}
	}
}
