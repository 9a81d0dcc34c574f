package acl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// Guarding says who may write to guarded topics. Nobody else may, but for super users, whom no
// rule binds.
type Guarding struct {
	// May are the principals that may, as "User:name"; that of the mirror has to be among
	// them, since a DENY holds for it too.
	May []string
	// SuperUsers: all of May are super users of the cluster. WRITE can be denied to User:* then.
	SuperUsers bool
	// Open: who has no rule may do everything (allow.everyone.if.no.acl.found). The first rule
	// of a topic ends that for all but those that it names.
	Open bool
}

// Validate reports every bad field.
func (g Guarding) Validate() error {
	var errs []error
	if len(g.May) == 0 {
		errs = append(errs, errors.New("May: is empty; the mirror's own principal belongs there"))
	}
	for i, p := range g.May {
		if err := validPrincipal(p); err != nil {
			errs = append(errs, fmt.Errorf("May[%d]: %w", i, err))
		} else if p == everyone {
			errs = append(errs, fmt.Errorf("May[%d]: %s is everyone", i, p))
		}
	}
	return errors.Join(errs...)
}

const everyone = "User:*"

// openRights are what everyone has on a topic without rules in an open cluster, but for
// WRITE; READ implies DESCRIBE, and ALTER_CONFIGS DESCRIBE_CONFIGS.
var openRights = []string{"READ", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"}

// Rules are those that have to stand beside the rules of others so that nobody writes to the
// topics who may not, sorted: a DENY of WRITE for each principal that one of the others
// allows it, and that none denies it everywhere. bare are topics that the others say nothing of.
// In an open cluster they get what everyone has there but for WRITE; in another one nobody may
// write to them. unguarded are topics that cannot be guarded in full, with the reason.
func (g Guarding) Rules(topics []string, others []cluster.Binding) (want []cluster.Binding, bare []string, unguarded map[string]error) {
	unguarded = map[string]error{}
	on := index(others)
	for _, topic := range topics {
		rules := on.of(topic)
		if len(rules) == 0 {
			bare = append(bare, topic)
			want = append(want, g.instead(topic)...)
			continue
		}
		denied := map[string]bool{}
		for _, b := range rules {
			if b.Permission == "DENY" && b.Host == "*" && writes(b) {
				denied[b.Principal] = true
			}
		}
		writers := map[string]cluster.Binding{}
		for _, b := range rules {
			if b.Permission == "ALLOW" && writes(b) && !denied[b.Principal] && !denied[everyone] && !slices.Contains(g.May, b.Principal) {
				writers[b.Principal] = b
			}
		}
		for principal, b := range writers {
			if principal == everyone && !g.SuperUsers {
				unguarded[topic] = fmt.Errorf("topic %s: %v lets everyone write: a DENY for %s would hold for %s too, unless they are super users",
					topic, b, everyone, strings.Join(g.May, ", "))
				continue
			}
			want = append(want, onTopic(topic, principal, "WRITE", "DENY"))
		}
	}
	slices.SortFunc(want, compare)
	return slices.Compact(want), bare, unguarded
}

// instead are the rules of a topic that has none.
func (g Guarding) instead(topic string) (bs []cluster.Binding) {
	if !g.Open {
		return nil
	}
	for _, operation := range openRights {
		bs = append(bs, onTopic(topic, everyone, operation, "ALLOW"))
	}
	for _, principal := range g.May {
		bs = append(bs, onTopic(topic, principal, "WRITE", "ALLOW"))
	}
	return bs
}

func onTopic(topic, principal, operation, permission string) cluster.Binding {
	return cluster.Binding{
		ResourceType: "TOPIC", Name: topic, PatternType: "LITERAL", Principal: principal, Host: "*", Operation: operation, Permission: permission,
	}
}

func writes(b cluster.Binding) bool { return b.Operation == "WRITE" || b.Operation == "ALL" }

// patterns are rules of topics by the names of their patterns.
type patterns struct{ literal, prefixed map[string][]cluster.Binding }

func index(bs []cluster.Binding) patterns {
	p := patterns{map[string][]cluster.Binding{}, map[string][]cluster.Binding{}}
	for _, b := range bs {
		switch {
		case b.ResourceType != "TOPIC":
		case b.PatternType == "PREFIXED":
			p.prefixed[b.Name] = append(p.prefixed[b.Name], b)
		default:
			p.literal[b.Name] = append(p.literal[b.Name], b)
		}
	}
	return p
}

// of gives the rules that hold for a topic (StandardAuthorizerData.findAclRule).
func (p patterns) of(topic string) []cluster.Binding {
	all := slices.Concat(p.literal[topic], p.literal["*"])
	for end := range len(topic) + 1 {
		all = append(all, p.prefixed[topic[:end]]...)
	}
	return all
}

// sortedKeys are the names of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
