package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// Rule describes access rules, as the filter of Kafka's DescribeAcls does. A field that is
// empty is any.
type Rule struct {
	// ResourceType is TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER or ANY.
	ResourceType string
	// PatternType is LITERAL or PREFIXED, which the pattern is and whose name is Name; ANY,
	// either of the two by that name; or MATCH, every pattern that the resource called Name
	// falls under: its own, the prefixes of it and "*". Default: ANY.
	PatternType string
	Name        string
	Principal   string // "User:app"
	Host        string
	// Operation is READ, WRITE and so on. ALL is the operation of that name, ANY is any.
	Operation  string
	Permission string // ALLOW, DENY or ANY
}

const anything, matching = "ANY", "MATCH"

// words are those that Kafka has for a field (ResourceType, PatternType, AclOperation,
// AclPermissionType of org.apache.kafka.common).
var (
	resourceTypes = []string{"TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"}
	patternTypes  = []string{"LITERAL", "PREFIXED", matching}
	operations    = []string{
		"ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
		"IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
	}
	permissions = []string{"ALLOW", "DENY"}
)

// validate reports every bad field by its name.
func (r Rule) validate() error {
	var errs []error
	for _, f := range []struct {
		name, value string
		words       []string
	}{
		{"ResourceType", r.ResourceType, resourceTypes}, {"PatternType", r.PatternType, patternTypes},
		{"Operation", r.Operation, operations}, {"Permission", r.Permission, permissions},
	} {
		if f.value != "" && f.value != anything && !slices.Contains(f.words, f.value) {
			errs = append(errs, fmt.Errorf("%s: %q is none of %s, %s", f.name, f.value, strings.Join(f.words, ", "), anything))
		}
	}
	if r.Principal != "" {
		if err := validPrincipal(r.Principal); err != nil {
			errs = append(errs, fmt.Errorf("Principal: %w", err))
		}
	}
	if r.PatternType == matching && r.Name == "" {
		errs = append(errs, errors.New("Name: is empty with PatternType MATCH"))
	}
	return errors.Join(errs...)
}

func validPrincipal(p string) error {
	if kind, name, found := strings.Cut(p, ":"); !found || kind == "" || name == "" {
		return fmt.Errorf("%q has not the form Type:name", p)
	}
	return nil
}

// matches is AclBindingFilter.matches of Kafka.
func (r Rule) matches(b cluster.Binding) bool {
	return is(r.ResourceType, b.ResourceType) && r.named(b) && is(r.Principal, b.Principal) && is(r.Host, b.Host) &&
		is(r.Operation, b.Operation) && is(r.Permission, b.Permission)
}

func is(want, value string) bool { return want == "" || want == anything || want == value }

// named compares the pattern (ResourcePatternFilter.matches).
func (r Rule) named(b cluster.Binding) bool {
	switch {
	case r.PatternType != matching:
		return is(r.PatternType, b.PatternType) && (r.Name == "" || r.Name == b.Name)
	case b.PatternType == "PREFIXED":
		return strings.HasPrefix(r.Name, b.Name)
	}
	return b.Name == r.Name || b.Name == "*"
}

// Filter says which access rules are synced: those that one of include matches and none of
// exclude.
type Filter struct{ include, exclude []Rule }

// NewFilter reports every bad rule with its place. No include is an error: all access rules
// are a [Rule] without fields.
func NewFilter(include, exclude []Rule) (*Filter, error) {
	var errs []error
	if len(include) == 0 {
		errs = append(errs, errors.New("Include: is empty; all access rules are a Rule without fields"))
	}
	for _, list := range []struct {
		name  string
		rules []Rule
	}{{"Include", include}, {"Exclude", exclude}} {
		for i, r := range list.rules {
			if err := r.validate(); err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", list.name, i, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Filter{slices.Clone(include), slices.Clone(exclude)}, nil
}

// Includes reports whether an access rule is synced.
func (f *Filter) Includes(b cluster.Binding) bool {
	match := func(r Rule) bool { return r.matches(b) }
	return slices.ContainsFunc(f.include, match) && !slices.ContainsFunc(f.exclude, match)
}
