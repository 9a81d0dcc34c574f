package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/coordinator"
)

// ACLs are access rules that are copied, with all their rights: whoever may write at the source
// may at the destination. They are read with DESCRIBE on the cluster and written with ALTER.
// Mirrors into one cluster that share a state store keep each other's; two mirrors that
// go opposite ways should not have the same rules with Delete, each would take the other's copy
// for an original. What the Guard of a mirror into the source has added is not copied, where
// that one's state is known: it is in Store or in Positions.
type ACLs struct {
	// Sync turns it on. Default: access rules are left alone.
	Sync bool
	// Include and Exclude say which: those that one rule of Include matches and none of Exclude.
	// Include must not be empty with Sync; a Rule without fields is all access rules.
	Include, Exclude []acl.Rule
	// Delete deletes rules at the destination that are gone at the source, of those that this
	// mirror has created; others are never touched. Default: rules are only added.
	Delete bool
	// Interval is how often they are compared. Default: 60 s.
	Interval time.Duration
}

// filter parses what is configured; nil where it is off.
func (a ACLs) filter() (*acl.Filter, error) {
	if !a.Sync {
		return nil, nil
	}
	f, err := acl.NewFilter(a.Include, a.Exclude)
	if err != nil {
		return nil, fmt.Errorf("ACLs: %w", err)
	}
	return f, nil
}

// acls is what the rounds of SyncACLs need.
type acls struct {
	source      acl.Source // nil: cannot
	destination acl.Sink   // nil: cannot
	filter      *acl.Filter
	notes       acl.Notes
	peers       acl.Notes // of mirrors into the source; nil: not known
	warned      bool      // of a cluster that keeps none; belongs to the round under way
}

func newACLs(source Source, destination Destination, filter *acl.Filter, store coordinator.Store, peers coordinator.Positions) *acls {
	a := &acls{filter: filter}
	a.source, _ = source.(acl.Source)
	a.destination, _ = destination.(acl.Sink)
	if a.notes, _ = store.(acl.Notes); a.notes == nil {
		a.notes = coordinator.NewMemory()
	}
	a.peers, _ = peers.(acl.Notes)
	return a
}

// syncACLs is one round of SyncACLs.
func (m *Mirror) syncACLs(ctx context.Context) (outcome, error) {
	switch {
	case m.acls.source == nil:
		return outcome{idle: "the source cannot list access rules"}, nil
	case m.acls.destination == nil:
		return outcome{idle: "the destination cannot take access rules"}, nil
	}
	if err := m.identify(ctx); err != nil {
		return outcome{}, err
	}
	source, destination, err := m.identity(ctx)
	if err != nil {
		return outcome{}, err
	}
	guards := []acl.Ledger{{Notes: m.acls.notes, Cluster: source}}
	if m.acls.peers != nil {
		guards = append(guards, acl.Ledger{Notes: m.acls.peers, Cluster: source})
	}
	report, err := acl.Syncer{
		Source: m.acls.source, Destination: m.acls.destination, Filter: m.acls.filter, Delete: m.opts.ACLs.Delete,
		Ledger: acl.Ledger{Notes: m.acls.notes, Cluster: destination, Mirror: m.name},
		Guards: guards,
	}.Sync(ctx)
	if errors.Is(err, errors.ErrUnsupported) { // cluster.ErrNoAuthorizer, or an Admin that cannot
		if !m.acls.warned {
			m.opts.Logger.Warn("access rules are not synced", "mirror", m.name, "err", err)
		}
		m.acls.warned = true
		return outcome{idle: err.Error()}, nil
	}
	m.acls.warned = m.acls.warned && err != nil
	if report.Created > 0 && m.opts.Guard.On {
		m.guard.kind.soon() // somebody may have been allowed to write
	}
	return outcome{
		again:   report.Again || len(report.Refused) > 0,
		done:    map[string]int64{"created": int64(report.Created), "deleted": int64(report.Deleted)},
		seen:    map[string]int64{"matched": int64(report.Matched), "owned": int64(report.Owned), "left": int64(report.Left)},
		refused: report.Refused,
	}, err
}
