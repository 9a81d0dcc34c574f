package topics

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ErrInternal: a topic of the cluster's own (__consumer_offsets and the like)
// was asked for. They are never mirrored.
var ErrInternal = errors.New("internal topics are never mirrored")

// A Filter says which topics belong to a mirror. Each entry is either a literal
// name, when it has only characters that topic names may have (so
// "audit.events" is that one topic), or else a regular expression (RE2) that
// must match the whole name ("orders.*"). Exclusion wins; what matches nothing is
// not in; internal topics (__*) never are.
type Filter struct {
	include, exclude set
}

type set struct {
	entries  []string
	literals map[string]bool
	patterns []*regexp.Regexp
}

// NewFilter reports every bad entry at once, each by its text.
func NewFilter(include, exclude []string) (*Filter, error) {
	f := &Filter{}
	return f, errors.Join(f.Include(include...), f.Exclude(exclude...))
}

// Include adds entries; those that are in already change nothing. When one of
// them is bad, none is added, and the error names every bad one.
func (f *Filter) Include(entries ...string) error {
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e, "__") {
			errs = append(errs, fmt.Errorf("topic filter %q: %w", e, ErrInternal))
		}
	}
	changed := f.include.clone()
	if err := errors.Join(append(errs, changed.add("include", entries))...); err != nil {
		return err
	}
	f.include = changed
	return nil
}

// Exclude adds entries, all or, when one is bad, none.
func (f *Filter) Exclude(entries ...string) error {
	changed := f.exclude.clone()
	if err := changed.add("exclude", entries); err != nil {
		return err
	}
	f.exclude = changed
	return nil
}

// Readmit takes entries out of the exclusion again.
func (f *Filter) Readmit(entries ...string) {
	kept := slices.DeleteFunc(slices.Clone(f.exclude.entries), func(e string) bool { return slices.Contains(entries, e) })
	f.exclude = set{}
	f.exclude.add("exclude", kept) // all were good before
}

// Includes reports whether the topic belongs to the mirror, or did before it was
// excluded.
func (f *Filter) Includes(topic string) bool {
	return !strings.HasPrefix(topic, "__") && f.include.has(topic)
}

// Empty reports whether nothing is included.
func (f *Filter) Empty() bool { return len(f.include.entries) == 0 }

// Matches reports whether the topic belongs to the mirror.
func (f *Filter) Matches(topic string) bool {
	return f.Includes(topic) && !f.exclude.has(topic)
}

// Literals are the included names that are no patterns, sorted. Each is expected
// to exist.
func (f *Filter) Literals() []string {
	var names []string
	for n := range f.include.literals {
		if !f.exclude.has(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// Select gives those of names that one set of entries, read like an inclusion,
// matches; all of them when there are no entries.
func Select(entries, names []string) ([]string, error) {
	if len(entries) == 0 {
		return slices.Clone(names), nil
	}
	var s set
	if err := s.add("topic", entries); err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		if s.has(n) {
			out = append(out, n)
		}
	}
	return out, nil
}

func (s *set) add(field string, entries []string) error {
	var errs []error
	for _, e := range entries {
		switch {
		case slices.Contains(s.entries, e):
			continue
		case e == "":
			errs = append(errs, fmt.Errorf("%s: an empty entry", field))
			continue
		case Literal(e):
			if len(e) > 249 {
				errs = append(errs, fmt.Errorf("%s %q: a topic name has at most 249 characters", field, e))
				continue
			}
			if s.literals == nil {
				s.literals = map[string]bool{}
			}
			s.literals[e] = true
		default:
			re, err := regexp.Compile(`^(?:` + e + `)$`)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %q: %w", field, e, err))
				continue
			}
			s.patterns = append(s.patterns, re)
		}
		s.entries = append(s.entries, e)
	}
	return errors.Join(errs...)
}

func (s *set) has(topic string) bool {
	if s.literals[topic] {
		return true
	}
	return slices.ContainsFunc(s.patterns, func(re *regexp.Regexp) bool { return re.MatchString(topic) })
}

// Literal reports whether a filter entry is a name rather than a pattern: it has
// only characters that topic names may have.
func Literal(entry string) bool {
	for _, c := range entry {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return entry != ""
}

// Clone is a copy that changes of f do not reach.
func (f *Filter) Clone() *Filter {
	return &Filter{include: f.include.clone(), exclude: f.exclude.clone()}
}

func (s set) clone() set {
	return set{entries: slices.Clone(s.entries), literals: maps.Clone(s.literals), patterns: slices.Clone(s.patterns)}
}
