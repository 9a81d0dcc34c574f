package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/offsets"
	"github.com/clustermirror/mirror/topics"
)

// Options of a mirror. The zero value, and a nil pointer, are a mirror without
// topics, to be given some by Start.
type Options struct {
	// Topics are the topics that are mirrored from the start.
	Topics Topics
	// Store keeps what has to survive the process; with the ability coordinator.Notes also
	// which settings of topics are the mirror's doing. Default: memory, which is
	// enough for identical logs; what a restart then forgets are the desired
	// states (a paused topic goes on).
	Store coordinator.Store
	// Events are told what happens. Default: nobody is told.
	Events Events
	// Logger. Default: silent.
	Logger *slog.Logger

	// SyncInterval is how often topics are looked for and compared. Default: 60 s.
	SyncInterval time.Duration
	// ConfigInterval is how often settings of topics are compared. Default: 60 s.
	ConfigInterval time.Duration
	// NoConfigs leaves settings of topics alone once a topic is created with the source's.
	// Default: they are kept in step, and are in step before the first record is copied.
	NoConfigs bool
	// Groups are the consumer groups and share groups whose offsets are copied. Default: all
	// but those of the console consumer.
	Groups Groups
	// GroupInterval is how often committed offsets are copied. Default: 60 s.
	GroupInterval time.Duration
	// GroupTimeout bounds the copying (and the restoring) of committed group offsets at a stop; with
	// a dead source the stop goes on without it. Default: 10 s.
	GroupTimeout time.Duration
	// NoGroups leaves committed group offsets alone. Default: they are copied at every
	// GroupInterval, and once more when a topic is stopped.
	NoGroups bool
	// ACLs are the access rules that are copied. Default: none.
	ACLs ACLs
	// Guard keeps others from writing to mirror topics. Default: off.
	Guard Guard
	// AlignmentTimeout bounds one try to align a partition; filling a log start, which
	// can take longer, is not bounded. Default: 5 min.
	AlignmentTimeout time.Duration
	// RetryMin and RetryMax bound the wait of a failed partition before it is
	// tried again. Default: 1 s and 300 s.
	RetryMin, RetryMax time.Duration

	// Fetch tunes the copying, and says what becomes of records that the source's
	// retention deletes before they were copied (Fetch.RetentionGap).
	Fetch fetcher.Options

	// Start is where the copy of a topic begins whose destination is empty and to
	// which this mirror never appended: of those that the mirror finds when it begins, or
	// right after a Start that names them. Topics and partitions found later always begin
	// at the source's log start. Default: the source's log start.
	Start Start
	// UncleanRecovery names topics (entries as in Topics) whose destination log may
	// be cut when the source has lost records that were mirrored already (unclean
	// leader election). Default: none; such a partition is FAILED, with the offsets
	// named and nothing cut.
	UncleanRecovery []string
	// DiscardLocalWrites lets a start after a stop cut what was written at the
	// destination meanwhile, when no mirror the other way has taken it to the source; and
	// what was written while others led a log that is being mirrored, where clients are
	// kept out otherwise. Default: refused.
	DiscardLocalWrites bool
	// Scratch lets a mirror delete a destination log of which nothing tells how much
	// is the source's, and copy everything anew. Default: refused.
	Scratch bool
	// Salvage is given every tail before it is cut. An error keeps it from being
	// cut; the cut is tried again. [SalvageTo] writes files. Default: tails are not
	// kept.
	Salvage func(ctx context.Context, t Tail) error
	// Positions tells where mirrors the other way stopped, whose destination is this
	// mirror's source: the state store of that cluster. A failback needs it, and so
	// does the refusal of loops. Default: the source, when it has that ability.
	Positions coordinator.Positions
}

// Start is where a copy begins.
type Start = fetcher.Start

// Topics names topics. An entry made only of characters that topic names may
// have is one topic's name ("audit.events"); any other is a regular expression
// (RE2) that must match the whole name ("orders.*"). Exclusion wins over
// inclusion. Internal topics (__*) are never mirrored.
type Topics struct {
	Include []string
	Exclude []string
}

// Groups names consumer groups and share groups. An entry made only of characters that topic names may
// have is one group's name; any other is a regular expression (RE2) that must match the
// whole name. Without Include all groups are copied but those of the console consumer,
// console-consumer-.*; with it those that it names. Exclusion wins over inclusion.
type Groups struct {
	Include []string
	Exclude []string
}

// filters are the parsed entries.
type filters struct {
	topics, unclean *topics.Filter
	groups          *offsets.Filter
	acls            *acl.Filter
}

// normalize fills in defaults and reports every bad field at once.
func (o *Options) normalize() (Options, filters, error) {
	var v Options
	if o != nil {
		v = *o
	}
	var f filters
	var err, uncleanErr, groupsErr, aclsErr error
	f.topics, err = topics.NewFilter(v.Topics.Include, v.Topics.Exclude)
	if f.unclean, uncleanErr = topics.NewFilter(v.UncleanRecovery, nil); uncleanErr != nil {
		uncleanErr = fmt.Errorf("UncleanRecovery: %w", uncleanErr)
	}
	f.groups, groupsErr = validGroups(v.Groups)
	f.acls, aclsErr = v.ACLs.filter()
	errs := []error{err, uncleanErr, groupsErr, aclsErr, v.Guard.validate()}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"SyncInterval", v.SyncInterval}, {"ConfigInterval", v.ConfigInterval}, {"GroupInterval", v.GroupInterval}, {"ACLs.Interval", v.ACLs.Interval},
		{"Guard.Interval", v.Guard.Interval}, {"GroupTimeout", v.GroupTimeout}, {"AlignmentTimeout", v.AlignmentTimeout}, {"Fetch.MaxWait", v.Fetch.MaxWait},
		{"RetryMin", v.RetryMin}, {"RetryMax", v.RetryMax}, {"Fetch.BackoffMin", v.Fetch.BackoffMin}, {"Fetch.BackoffMax", v.Fetch.BackoffMax},
		{"Fetch.RetryBudget", v.Fetch.RetryBudget}, {"Fetch.StallAfter", v.Fetch.StallAfter},
	} {
		if d.d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is negative", d.name, d.d))
		}
	}
	for _, n := range []struct {
		name string
		n    int64
	}{
		{"Fetch.PartitionBytes", int64(v.Fetch.PartitionBytes)}, {"Fetch.ResponseBytes", int64(v.Fetch.ResponseBytes)},
		{"Fetch.BudgetBytes", v.Fetch.BudgetBytes}, {"Fetch.CorruptTries", int64(v.Fetch.CorruptTries)},
	} {
		if n.n < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", n.name, n.n))
		}
	}
	v.SyncInterval = cmp.Or(v.SyncInterval, time.Minute)
	v.ConfigInterval = cmp.Or(v.ConfigInterval, time.Minute)
	v.GroupInterval = cmp.Or(v.GroupInterval, time.Minute)
	v.ACLs.Interval, v.Guard.Interval = cmp.Or(v.ACLs.Interval, time.Minute), cmp.Or(v.Guard.Interval, time.Minute)
	v.GroupTimeout = cmp.Or(v.GroupTimeout, 10*time.Second)
	v.AlignmentTimeout = cmp.Or(v.AlignmentTimeout, 5*time.Minute)
	v.RetryMin = cmp.Or(v.RetryMin, time.Second)
	v.RetryMax = cmp.Or(v.RetryMax, 300*time.Second)
	if v.RetryMax < v.RetryMin {
		errs = append(errs, fmt.Errorf("RetryMax: %v is below RetryMin (%v)", v.RetryMax, v.RetryMin))
	}
	if v.Logger == nil {
		v.Logger = slog.New(slog.DiscardHandler)
	}
	if v.Fetch.Logger == nil {
		v.Fetch.Logger = v.Logger
	}
	if v.Store == nil {
		v.Store = coordinator.NewMemory()
	}
	return v, f, errors.Join(errs...)
}

// validName applies the rules of topic names to a mirror's name.
func validName(name string) error {
	switch {
	case name == "":
		return errors.New("name: is empty")
	case name == "." || name == "..":
		return fmt.Errorf("name: %q is not allowed", name)
	case len(name) > 249:
		return fmt.Errorf("name: has %d characters, at most 249 are allowed", len(name))
	case !topics.Literal(name):
		return fmt.Errorf("name: %q has characters other than letters, digits, '.', '_' and '-'", name)
	}
	return nil
}
