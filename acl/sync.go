package acl

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// Guards are ledgers of mirrors into the source: what their guards have added there is
	// not copied.
	Guards []Ledger
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
	theirs, err := s.theirs(ctx)
	if err != nil {
		return Report{}, err
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
	ours, owners := r.page.beside(ours)
	ch := Diff(s.Ledger.Mirror, theirs, ours, owners, s.Filter, s.Delete)
	r.Left = len(ch.Left)
	err = r.apply(ctx, ch)
	r.Owned = len(s.Ledger.held(r.page.copied))
	return r.Report, err
}

// theirs are the source's rules but for those of guards there. They are looked up twice, as one
// may come or go while rules are listed.
func (s Syncer) theirs(ctx context.Context) ([]cluster.Binding, error) {
	guards := map[cluster.Binding]bool{}
	look := func() error {
		for _, l := range s.Guards {
			p, err := l.read(ctx)
			if err != nil {
				return fmt.Errorf("guards at the source: %w", err)
			}
			for b := range p.guards.owners {
				if len(p.copied.owners[b]) == 0 {
					guards[b] = true
				}
			}
		}
		return nil
	}
	if err := look(); err != nil {
		return nil, err
	}
	all, err := s.Source.ACLs(ctx)
	if err != nil {
		return nil, fmt.Errorf("source ACLs: %w", err)
	}
	if err := look(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(b cluster.Binding) bool { return guards[b] }), nil
}

// guardian stands among the owners of a rule that a guard needs too; no mirror can be called so.
const guardian = "guard:"

// beside is how the destination stands for those who copy: without what is there for a guard
// alone, which goes with it, and with the guard as an owner of what is there for both.
func (p *page) beside(there []cluster.Binding) ([]cluster.Binding, Owners) {
	owners := maps.Clone(p.copied.owners)
	for b := range p.guards.owners {
		if held := owners[b]; len(held) > 0 {
			owners[b] = append(slices.Clone(held), guardian)
		}
	}
	return slices.DeleteFunc(there, func(b cluster.Binding) bool {
		return len(p.guards.owners[b]) > 0 && len(p.copied.owners[b]) == 0
	}), owners
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
	refused, err := r.Ledger.hold(ctx, r.page.copied, bs)
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
	_, err = r.Ledger.release(ctx, r.page.copied, not)
	return err
}

// definite says that what was asked for was certainly not done.
func definite(err error) bool {
	return errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrAuthorization) || errors.Is(err, errors.ErrUnsupported)
}

func (r *round) hold(ctx context.Context, bs []cluster.Binding) error {
	refused, err := r.Ledger.hold(ctx, r.page.copied, bs)
	r.overtaken(refused)
	return err
}

func (r *round) release(ctx context.Context, bs []cluster.Binding) error {
	refused, err := r.Ledger.release(ctx, r.page.copied, bs)
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
	refused, err := r.Ledger.release(ctx, r.page.copied, gone)
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
