package offsets

import (
	"errors"
	"fmt"
	"regexp"
)

// throwaway are the groups of Kafka's console consumer, each used once.
const throwaway = "console-consumer-.*"

// Filter says which groups are copied. A nil Filter, and one of no entries, leaves out those of
// the console consumer, console-consumer-.*, and nothing else.
type Filter struct{ include, exclude []entry }

// NewFilter parses entries. An entry made only of characters that topic names may have is
// one group's name; any other is a regular expression (RE2) that must match the whole name.
// Without include all groups are; with it those that it names, also groups of the console
// consumer. Exclusion wins over inclusion. Every bad entry is reported.
func NewFilter(include, exclude []string) (*Filter, error) {
	var f Filter
	var errs []error
	for _, list := range []struct {
		what    string
		entries []string
		to      *[]entry
	}{{"include", include, &f.include}, {"exclude", exclude, &f.exclude}} {
		for _, text := range list.entries {
			e, err := parse(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %q: %w", list.what, text, err))
			}
			*list.to = append(*list.to, e)
		}
	}
	return &f, errors.Join(errs...)
}

// Includes reports whether a group is copied.
func (f *Filter) Includes(group string) bool {
	switch {
	case f != nil && matches(f.exclude, group):
		return false
	case f != nil && len(f.include) > 0:
		return matches(f.include, group)
	}
	return !consoles.MatchString(group)
}

var (
	consoles = whole(throwaway)
	literal  = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

// entry is one name, or an expression where that is not nil.
type entry struct {
	name string
	expr *regexp.Regexp
}

func parse(text string) (entry, error) {
	if literal.MatchString(text) {
		return entry{name: text}, nil
	}
	if text == "" {
		return entry{}, errors.New("is empty")
	}
	if _, err := regexp.Compile(text); err != nil {
		return entry{}, err
	}
	return entry{expr: whole(text)}, nil
}

// whole matches whole names, whatever their characters.
func whole(text string) *regexp.Regexp { return regexp.MustCompile(`^(?s:` + text + `)$`) }

func matches(entries []entry, group string) bool {
	for _, e := range entries {
		if e.expr == nil && e.name == group || e.expr != nil && e.expr.MatchString(group) {
			return true
		}
	}
	return false
}
