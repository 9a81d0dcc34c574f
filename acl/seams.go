package acl

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
)

// Source is a cluster that access rules are read from. Safe for concurrent use.
type Source interface {
	// ACLs gives all access rules. A cluster that keeps none answers
	// cluster.ErrNoAuthorizer.
	ACLs(ctx context.Context) ([]cluster.Binding, error)
}

// Sink is a cluster that access rules are written to. Safe for concurrent use.
type Sink interface {
	Source
	// CreateACLs adds rules and answers each in its order; one that is there already is
	// no error. A rule that is refused keeps no other from being added.
	CreateACLs(ctx context.Context, bindings []cluster.Binding) []error
	// DeleteACLs removes exactly these rules and answers each in its order; one that is
	// not there is no error.
	DeleteACLs(ctx context.Context, bindings []cluster.Binding) []error
}

// Notes is a place for small values, by name and key, which outlives the process; the state
// store of a mirror is one, see coordinator.Notes.
type Notes interface {
	Notes(ctx context.Context, mirror string) (map[string][]byte, error)
	SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) (refused []string, err error)
}
