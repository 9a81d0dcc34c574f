package acl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// portion is how many rules are put on record, and written, at a time.
const portion = 500

// A Syncer brings the access rules of a destination in step with a source's, one round at
// a time. Rules keep all their rights.
type Syncer struct {
	Source      Source
	Destination Sink
	Filter      *Filter
	// Delete deletes rules that the source no longer has, of those that this mirror has
	// created, when no other mirror holds them.
	Delete bool
	Ledger Ledger
}

// Report is what a round found and did.
type Report struct {
	Matched int // rules that the source has and the filter takes in
	Owned   int // rules that this mirror holds
	Left    int // of those, rules that the source no longer has and that stay
	Created int
	Deleted int
	// Refused are rules that could not be brought in step, by their text; each error names
	// its rule.
	Refused map[string]error
	// Again: another process has written who holds a rule, which is to be looked at again.
	Again bool
}

// round is one Sync under way.
type round struct {
	Syncer
	page *page
	Report
}

// Sync does one round. What is created is put on record before, so that it is known after
// a crash whose it is. A rule that is refused hides no other. With an error, not everything
// was looked at.
func (s Syncer) Sync(ctx context.Context) (Report, error) {
	theirs, err := s.Source.ACLs(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("source ACLs: %w", err)
	}
	ours, err := s.Destination.ACLs(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("destination ACLs: %w", err)
	}
	// The record is read last: what another mirror has created is on it before it is listed,
	// and not taken for somebody's who is no mirror.
	r := &round{Syncer: s, Report: Report{Refused: map[string]error{}}}
	if r.page, err = s.Ledger.read(ctx); err != nil {
		return Report{}, err
	}
	for b := range set(theirs) {
		if s.Filter.Includes(b) {
			r.Matched++
		}
	}
	ch := Diff(s.Ledger.Mirror, theirs, ours, r.page.owners, s.Filter, s.Delete)
	r.Left = len(ch.Left)
	err = r.apply(ctx, ch)
	for _, held := range r.page.owners {
		if slices.Contains(held, s.Ledger.Mirror) {
			r.Owned++
		}
	}
	return r.Report, err
}

func (r *round) apply(ctx context.Context, ch Changes) error {
	for _, step := range []struct {
		of []cluster.Binding
		do func(context.Context, []cluster.Binding) error
	}{{ch.Create, r.create}, {ch.Hold, r.hold}, {ch.Release, r.release}, {ch.Delete, r.remove}} {
		for some := range slices.Chunk(step.of, portion) {
			if err := step.do(ctx, some); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) create(ctx context.Context, bs []cluster.Binding) error {
	refused, err := r.Ledger.hold(ctx, r.page, bs)
	if err != nil {
		return err
	}
	r.overtaken(refused)
	bs = slices.DeleteFunc(slices.Clone(bs), func(b cluster.Binding) bool { return refused[b] })
	if len(bs) == 0 {
		return nil
	}
	var not []cluster.Binding
	for i, err := range r.Destination.CreateACLs(ctx, bs) {
		if err == nil {
			r.Created++
			continue
		}
		r.fail(bs[i], "not created", err)
		if definite(err) {
			not = append(not, bs[i])
		}
	}
	_, err = r.Ledger.release(ctx, r.page, not)
	return err
}

// definite says that what was asked for was certainly not done.
func definite(err error) bool {
	return errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrAuthorization) || errors.Is(err, errors.ErrUnsupported)
}

func (r *round) hold(ctx context.Context, bs []cluster.Binding) error {
	refused, err := r.Ledger.hold(ctx, r.page, bs)
	r.overtaken(refused)
	return err
}

func (r *round) release(ctx context.Context, bs []cluster.Binding) error {
	refused, err := r.Ledger.release(ctx, r.page, bs)
	r.overtaken(refused)
	return err
}

// remove deletes rules and strikes them off the record. Where another mirror has come to
// hold one meanwhile, it is created again.
func (r *round) remove(ctx context.Context, bs []cluster.Binding) error {
	var gone []cluster.Binding
	for i, err := range r.Destination.DeleteACLs(ctx, bs) {
		if err != nil {
			r.fail(bs[i], "not deleted", err)
			continue
		}
		gone = append(gone, bs[i])
	}
	refused, err := r.Ledger.release(ctx, r.page, gone)
	if err != nil {
		return err
	}
	r.overtaken(refused)
	r.Deleted += len(gone) - len(refused)
	again := slices.DeleteFunc(gone, func(b cluster.Binding) bool { return !refused[b] })
	if len(again) == 0 {
		return nil
	}
	for i, err := range r.Destination.CreateACLs(ctx, again) {
		if err != nil {
			r.fail(again[i], "not created again for another mirror", err)
		}
	}
	return nil
}

// overtaken leaves rules to the next round.
func (r *round) overtaken(bs map[cluster.Binding]bool) { r.Again = r.Again || len(bs) > 0 }

func (r *round) fail(b cluster.Binding, what string, err error) {
	r.Refused[b.String()] = fmt.Errorf("ACL %v: %s: %w", b, what, err)
}
