package acl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// A Guard keeps others from writing to topics with access rules, and takes away
// exactly those that it has added. Its methods may not run at the same time.
type Guard struct {
	Cluster  Sink
	Ledger   Ledger
	Guarding Guarding
}

// GuardReport is what a round of a Guard found and did.
type GuardReport struct {
	Rules   int // that this mirror's guard holds
	Added   int
	Removed int
	// Bare are topics that no rule of others says anything of.
	Bare []string
	// Refused are topics that are not guarded in full, or not let go, by name; each error
	// names the topic and the principal.
	Refused map[string]error
	// Again: another process has written what this guard holds, which is to be looked at again.
	Again bool
}

// guardRound is one Keep or Lift under way.
type guardRound struct {
	Guard
	page *page
	GuardReport
}

// Keep does one round: topics are guarded as their rules stand now, others that stay says
// stay as they are, and the rest of what this guard holds is let go. What is added is put on record
// before, so that it is known after a crash whose it is. A rule that is there already
// is somebody else's. With an error, not everything was looked at.
func (g Guard) Keep(ctx context.Context, topics []string, stay func(topic string) bool) (GuardReport, error) {
	there, err := g.Cluster.ACLs(ctx)
	if err != nil {
		return GuardReport{}, fmt.Errorf("ACLs: %w", err)
	}
	r, err := g.round(ctx)
	if err != nil {
		return GuardReport{}, err
	}
	listed := set(there)
	others := slices.DeleteFunc(there, func(b cluster.Binding) bool {
		return len(r.page.guards.owners[b]) > 0 && len(r.page.copied.owners[b]) == 0
	})
	want, bare, unguarded := g.Guarding.Rules(topics, others)
	r.Bare, r.Refused = bare, unguarded
	needed, now := set(want), map[string]bool{}
	for _, topic := range topics {
		now[topic] = true
	}
	add := slices.DeleteFunc(want, func(b cluster.Binding) bool { return listed[b] && g.Ledger.holds(r.page.guards, b) })
	over := slices.DeleteFunc(g.Ledger.held(r.page.guards), func(b cluster.Binding) bool {
		return needed[b] || !now[b.Name] && stay(b.Name)
	})
	if err = r.add(ctx, add); err == nil {
		err = r.remove(ctx, over)
	}
	r.Rules = len(g.Ledger.held(r.page.guards))
	return r.GuardReport, err
}

// Lift takes away what the guard has added for some topics, or for all when of is nil. Where
// nothing is on record the cluster is not asked. A cluster that keeps no rules any more
// refuses nobody: what is on record stays there, until it keeps some again.
func (g Guard) Lift(ctx context.Context, of func(topic string) bool) (GuardReport, error) {
	r, err := g.round(ctx)
	if err != nil {
		return GuardReport{}, err
	}
	err = r.remove(ctx, slices.DeleteFunc(g.Ledger.held(r.page.guards), func(b cluster.Binding) bool { return of != nil && !of(b.Name) }))
	r.Rules = len(g.Ledger.held(r.page.guards))
	return r.GuardReport, err
}

func (g Guard) round(ctx context.Context) (*guardRound, error) {
	p, err := g.Ledger.read(ctx)
	return &guardRound{Guard: g, page: p, GuardReport: GuardReport{Refused: map[string]error{}}}, err
}

func (r *guardRound) add(ctx context.Context, all []cluster.Binding) error {
	var added []cluster.Binding
	for _, bs := range portions(all) {
		overtaken, err := r.Ledger.hold(ctx, r.page.guards, bs)
		if err != nil {
			return err
		}
		r.Again = r.Again || len(overtaken) > 0
		bs = slices.DeleteFunc(bs, func(b cluster.Binding) bool { return overtaken[b] })
		if len(bs) == 0 {
			continue
		}
		var not []cluster.Binding
		for i, err := range r.Cluster.CreateACLs(ctx, bs) {
			if err == nil {
				r.Added++
				added = append(added, bs[i])
				continue
			}
			r.fail(bs[i], "not added", err)
			if definite(err) {
				not = append(not, bs[i])
			}
		}
		if _, err := r.Ledger.release(ctx, r.page.guards, not); err != nil {
			return err
		}
	}
	return r.stillHeld(ctx, added)
}

// stillHeld takes away again what another process of this mirror has struck off the record
// while it was added: that one has let the topic go, and knows nothing of the rule.
func (r *guardRound) stillHeld(ctx context.Context, added []cluster.Binding) (err error) {
	if len(added) == 0 {
		return nil
	}
	if r.page, err = r.Ledger.read(ctx); err != nil {
		return err
	}
	gone := slices.DeleteFunc(added, func(b cluster.Binding) bool {
		return len(r.page.guards.owners[b]) > 0 || len(r.page.copied.owners[b]) > 0
	})
	for _, bs := range portions(gone) {
		r.Again = true
		for i, err := range r.Cluster.DeleteACLs(ctx, bs) {
			if err != nil {
				r.fail(bs[i], "not removed, though another process has let the topic go", err)
			}
		}
	}
	return nil
}

// remove deletes rules and strikes them off the record. What is there for others too stays:
// it is only struck off.
func (r *guardRound) remove(ctx context.Context, all []cluster.Binding) error {
	for _, bs := range portions(all) {
		var alone []cluster.Binding
		over := slices.DeleteFunc(slices.Clone(bs), func(b cluster.Binding) bool {
			shared := len(r.page.guards.owners[b]) > 1 || len(r.page.copied.owners[b]) > 0
			if !shared {
				alone = append(alone, b)
			}
			return !shared
		})
		if len(alone) > 0 {
			for i, err := range r.Cluster.DeleteACLs(ctx, alone) {
				switch {
				case err == nil:
					r.Removed++
					over = append(over, alone[i])
				case !errors.Is(err, cluster.ErrNoAuthorizer):
					r.fail(alone[i], "not removed", err)
				}
			}
		}
		overtaken, err := r.Ledger.release(ctx, r.page.guards, over)
		if err != nil {
			return err
		}
		r.Again = r.Again || len(overtaken) > 0
	}
	return nil
}

// fail notes what a topic was refused for; of several rules all are told.
func (r *guardRound) fail(b cluster.Binding, what string, err error) {
	r.Refused[b.Name] = errors.Join(r.Refused[b.Name], fmt.Errorf("topic %s: ACL %v: %s: %w", b.Name, b, what, err))
}

// portions cuts sorted rules so that those of a topic stay together: where some of them stood
// alone, too much would be refused.
func portions(bs []cluster.Binding) (out [][]cluster.Binding) {
	for len(bs) > 0 {
		end := min(portion, len(bs))
		for end < len(bs) && bs[end].Name == bs[end-1].Name {
			end++
		}
		out, bs = append(out, bs[:end:end]), bs[end:]
	}
	return out
}

// Guarded are the topics for which the ledger's mirror has added rules that are not taken
// away, sorted.
func (l Ledger) Guarded(ctx context.Context) ([]string, error) {
	p, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	for _, b := range l.held(p.guards) {
		topics[b.Name] = true
	}
	return sortedKeys(topics), nil
}
