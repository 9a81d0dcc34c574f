package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// every is a Rule without fields, in words.
const every = "all"

// field is one of a Rule, by the name that it has in words.
type field struct {
	name  string
	value *string
}

// fields are all of them, in order.
func (r *Rule) fields() []field {
	return []field{
		{"resource", &r.ResourceType}, {"pattern", &r.PatternType}, {"name", &r.Name}, {"principal", &r.Principal}, {"host", &r.Host},
		{"operation", &r.Operation}, {"permission", &r.Permission},
	}
}

// String is the rule as ParseRules reads it.
func (r Rule) String() string {
	var words []string
	for _, f := range r.fields() {
		if *f.value != "" {
			words = append(words, f.name+"="+*f.value)
		}
	}
	if len(words) == 0 {
		return every
	}
	return strings.Join(words, ",")
}

// ParseRules reads rules with ';' between them, each "all" or fields of a [Rule] as in
//
//	resource=TOPIC,pattern=PREFIXED,name=orders,principal=User:CN=app,OU=shop,operation=WRITE
//
// the names being resource, pattern, name, principal, host, operation and permission. A comma
// belongs to a value unless the name of a field and '=' follow. Every bad rule is reported.
func ParseRules(text string) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for one := range strings.SplitSeq(text, ";") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		r, err := parseRule(one)
		if err == nil {
			err = r.validate()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %q: %w", one, err))
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

func parseRule(text string) (r Rule, err error) {
	if text == every {
		return r, nil
	}
	fields := r.fields()
	var value *string // of the field that is being read
	for i, piece := range strings.Split(text, ",") {
		name, rest, found := strings.Cut(piece, "=")
		at := slices.IndexFunc(fields, func(f field) bool { return found && f.name == strings.TrimSpace(name) })
		switch {
		case at < 0 && i == 0:
			return r, fmt.Errorf("begins with none of resource=, pattern=, name=, principal=, host=, operation=, permission=, and is not %q", every)
		case at < 0:
			*value += "," + piece
		case *fields[at].value != "":
			return r, fmt.Errorf("%s= is there twice", fields[at].name)
		case rest == "":
			return r, fmt.Errorf("%s= is empty", fields[at].name)
		default:
			value = fields[at].value
			*value = rest
		}
	}
	return r, nil
}
