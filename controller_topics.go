package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// refuseStart refuses topics that another mirror has, internal ones, and those that
// would stay excluded.
func (o *operation) refuseStart(ctx context.Context) error {
	all, err := o.c.store.Definitions(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	claims, err := o.c.claims(ctx, o.def, all)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, other := range all {
		if other.Name == o.mirror || !sameDestination(other, o.def) {
			continue
		}
		for _, e := range other.Include {
			if topics.Literal(e) && !slices.Contains(other.Exclude, e) {
				claims[e] = other.Name
			}
		}
	}
	for _, name := range o.names {
		other, claimed := claims[name]
		pattern := o.excludedBy(name)
		switch {
		case strings.HasPrefix(name, "__"):
			o.refused[name] = topicError(o.op, o.mirror, name, ErrInternalTopic)
		case claimed:
			o.refused[name] = topicError(o.op, o.mirror, name, claimedBy(other))
		case pattern != "":
			o.refused[name] = topicError(o.op, o.mirror, name, fmt.Errorf("%w: %q", ErrExcluded, pattern))
		}
	}
	return nil
}

// excludedBy is the pattern that keeps a topic out that is started by name alone.
func (o *operation) excludedBy(name string) string {
	if len(o.entries) == 0 {
		return ""
	}
	for _, e := range o.def.Exclude {
		if topics.Literal(e) || slices.Contains(o.entries, e) {
			continue
		}
		if hit, _ := topics.Select([]string{e}, []string{name}); len(hit) > 0 {
			return e
		}
	}
	return ""
}

// refuseStopped refuses topics that are stopped, or are to be.
func (o *operation) refuseStopped(context.Context) error {
	for _, name := range o.names {
		if o.wishes[name] == coordinator.WantStopped {
			o.refused[name] = topicError(o.op, o.mirror, name, ErrStopped)
		}
	}
	return nil
}

// include takes what was asked for into the definition's topics.
func (o *operation) include(d *coordinator.Definition) error {
	back := slices.Clone(o.entries)
	for _, e := range o.entries {
		if o.refused[e] == nil && !slices.Contains(d.Include, e) {
			d.Include = append(d.Include, e)
		}
	}
	if len(o.entries) == 0 {
		back = slices.Clone(d.Include)
	}
	back = append(back, o.names...)
	d.Exclude = slices.DeleteFunc(d.Exclude, func(e string) bool { return o.refused[e] == nil && slices.Contains(back, e) })
	_, err := topics.NewFilter(d.Include, d.Exclude)
	return err
}

// exclude takes what was stopped out of the definition's topics. Patterns are kept
// out as such only where it is not known yet what they match.
func (o *operation) exclude(d *coordinator.Definition) error {
	out := slices.Clone(o.names)
	if o.c.live(o.mirror) == nil {
		out = append(out, o.entries...)
		if len(o.entries) == 0 {
			out = append(out, d.Include...)
		}
	}
	for _, e := range out {
		if !slices.Contains(d.Exclude, e) {
			d.Exclude = append(d.Exclude, e)
		}
	}
	_, err := topics.NewFilter(d.Include, d.Exclude)
	return err
}

// results sorts an error of a mirror's operation by topics. What concerns the whole
// mirror concerns every topic that is not where it was to be.
func (o *operation) results(m *Mirror, err error) ([]TopicResult, error) {
	of := map[string][]error{}
	whole := byTopic(err, of)
	names := slices.Clone(o.names)
	for name := range of {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make([]TopicResult, len(names))
	for i, name := range names {
		out[i] = TopicResult{Topic: name, Err: errors.Join(of[name]...)}
		if refused := o.refused[name]; refused != nil {
			out[i].Err, err = errors.Join(refused, out[i].Err), errors.Join(err, refused)
		}
		if out[i].Err == nil && len(whole) > 0 && !o.there(m, name) {
			out[i].Err = errors.Join(whole...)
		}
	}
	return out, err
}

// there reports whether all of a topic is in the state that was to be reached.
func (o *operation) there(m *Mirror, name string) bool {
	if o.done(name) {
		return true
	}
	if m == nil || o.reached == "" {
		return false
	}
	ps := m.partitionsOf([]string{name})
	for _, p := range ps {
		if s, ok := m.coord.Snapshot(p); !ok || s.State != o.reached {
			return false
		}
	}
	return len(ps) > 0
}

// byTopic notes the errors of single topics in of and gives the rest.
func byTopic(err error, of map[string][]error) (rest []error) {
	switch e := err.(type) {
	case nil:
	case *Error:
		if e.Partition.Topic != "" {
			of[e.Partition.Topic] = append(of[e.Partition.Topic], e)
			return nil
		}
		if many, ok := e.Err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 1 {
			return byTopic(e.Err, of)
		}
		return []error{e}
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			rest = append(rest, byTopic(each, of)...)
		}
	default:
		return []error{err}
	}
	return rest
}
