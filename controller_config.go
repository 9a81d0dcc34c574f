package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// ConfigKey is one key that [coordinator.Definition.Config] may have.
type ConfigKey struct {
	Name    string
	Values  string // what it may be set to
	Default string // what holds where neither the definition nor the Controller says anything
	Meaning string

	set func(o *Options, value string) error
}

// configKeys are all of them, by name. Each overrides one field of Options.
var configKeys = []ConfigKey{
	{"acls.delete", "true, false", "false", "access rules that this mirror has created are deleted when they are gone at the source",
		flag(func(o *Options) *bool { return &o.ACLs.Delete })},
	{"acls.enabled", "true, false", "false", "access rules that acls.include says are copied",
		flag(func(o *Options) *bool { return &o.ACLs.Sync })},
	{"acls.exclude", "rules, separated by semicolons", "", "access rules that are left alone; as acls.include",
		rules(func(o *Options) *[]acl.Rule { return &o.ACLs.Exclude })},
	{"acls.include", "rules, separated by semicolons", "",
		"access rules that are copied: all, or fields as in resource=TOPIC,pattern=PREFIXED,name=orders,principal=User:app,operation=READ,permission=ALLOW",
		rules(func(o *Options) *[]acl.Rule { return &o.ACLs.Include })},
	{"acls.interval", "a duration", "1m", "how often access rules are compared",
		duration(func(o *Options) *time.Duration { return &o.ACLs.Interval })},
	{"configs.enabled", "true, false", "true", "settings of topics are kept in step",
		choice(map[string]func(*Options){
			"true":  func(o *Options) { o.NoConfigs = false },
			"false": func(o *Options) { o.NoConfigs = true },
		})},
	{"configs.interval", "a duration", "1m", "how often settings of topics are compared",
		duration(func(o *Options) *time.Duration { return &o.ConfigInterval })},
	{"groups.enabled", "true, false", "true", "committed group offsets are copied",
		choice(map[string]func(*Options){
			"true":  func(o *Options) { o.NoGroups = false },
			"false": func(o *Options) { o.NoGroups = true },
		})},
	{"groups.exclude", "groups, by name or pattern, separated by commas", "", "groups whose committed offsets are left alone",
		list(func(o *Options) *[]string { return &o.Groups.Exclude })},
	{"groups.include", "groups, by name or pattern, separated by commas", "",
		"groups whose committed offsets are copied; all but console-consumer-.* without it",
		list(func(o *Options) *[]string { return &o.Groups.Include })},
	{"groups.interval", "a duration", "1m", "how often committed group offsets are copied",
		duration(func(o *Options) *time.Duration { return &o.GroupInterval })},
	{"guard.enabled", "true, false", "false", "others are kept from writing to mirror topics, by access rules that go again at the stop",
		flag(func(o *Options) *bool { return &o.Guard.On })},
	{"guard.interval", "a duration", "1m", "how often the rules of mirror topics are compared",
		duration(func(o *Options) *time.Duration { return &o.Guard.Interval })},
	{"guard.may", "principals as in User:mirror, separated by semicolons", "", "who may write to mirror topics all the same; the mirror's own belongs there",
		separated(";", func(o *Options) *[]string { return &o.Guard.May })},
	{"guard.open", "true, false", "false", "at the destination everyone may do everything with topics that have no rules (allow.everyone.if.no.acl.found)",
		flag(func(o *Options) *bool { return &o.Guard.Open })},
	{"guard.superusers", "true, false", "false", "all of guard.may are super users of the destination: writing can be denied to everyone else at once",
		flag(func(o *Options) *bool { return &o.Guard.SuperUsers })},
	{"local.writes", "refuse, discard", "refuse", "what a start after a stop does about records written at the destination meanwhile",
		choice(map[string]func(*Options){
			"refuse":  func(o *Options) { o.DiscardLocalWrites = false },
			"discard": func(o *Options) { o.DiscardLocalWrites = true },
		})},
	{"retention.gap", "continue, fail", "continue", "what happens when the source's retention has deleted records that were not copied yet",
		choice(map[string]func(*Options){
			"continue": func(o *Options) { o.Fetch.RetentionGap = fetcher.RetentionContinue },
			"fail":     func(o *Options) { o.Fetch.RetentionGap = fetcher.RetentionFail },
		})},
	{"retry.max", "a duration", "5m", "the longest wait of a failed partition",
		duration(func(o *Options) *time.Duration { return &o.RetryMax })},
	{"retry.min", "a duration", "1s", "the wait of a partition that failed once",
		duration(func(o *Options) *time.Duration { return &o.RetryMin })},
	{"scratch", "refuse, allow", "refuse", "a destination log of which nothing tells how much is the source's is deleted and copied anew",
		choice(map[string]func(*Options){
			"refuse": func(o *Options) { o.Scratch = false },
			"allow":  func(o *Options) { o.Scratch = true },
		})},
	{"start", "earliest, latest, a time (RFC 3339) or milliseconds since 1970", "earliest",
		"where the copy of a topic begins whose destination is empty", setStart},
	{"sync.interval", "a duration", "1m", "how often topics are looked for and compared",
		duration(func(o *Options) *time.Duration { return &o.SyncInterval })},
	{"unclean.recovery", "topics, by name or pattern, separated by commas", "",
		"topics whose destination log may be cut when the source has lost what was mirrored",
		list(func(o *Options) *[]string { return &o.UncleanRecovery })},
}

// ConfigKeys are the keys of a definition's Config, by name. Durations are written
// as in "90s" or "1h30m" and are above zero. Any other key is refused by its name.
func ConfigKeys() []ConfigKey { return slices.Clone(configKeys) }

// options are the options of one mirror: the Controller's, with what its definition
// says. Every bad key and value is reported.
func (c *Controller) options(def coordinator.Definition) (Options, error) {
	o := c.opts.Mirrors
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(def.Config)) {
		i := slices.IndexFunc(configKeys, func(k ConfigKey) bool { return k.Name == key })
		if i < 0 {
			errs = append(errs, fmt.Errorf("config: no such key: %q", key))
			continue
		}
		if err := configKeys[i].set(&o, strings.TrimSpace(def.Config[key])); err != nil {
			errs = append(errs, fmt.Errorf("config: %s: %w", key, err))
		}
	}
	if len(errs) == 0 {
		if _, _, err := o.normalize(); err != nil { // fields that do not go together
			errs = append(errs, fmt.Errorf("config: %w", err))
		}
	}
	o.Topics = Topics{Include: slices.Clone(def.Include), Exclude: slices.Clone(def.Exclude)}
	o.Store = c.store
	return o, errors.Join(errs...)
}

func choice(of map[string]func(*Options)) func(*Options, string) error {
	return func(o *Options, value string) error {
		set, ok := of[value]
		if !ok {
			return fmt.Errorf("%q is none of %s", value, strings.Join(sorted(of), ", "))
		}
		set(o)
		return nil
	}
}

func duration(field func(*Options) *time.Duration) func(*Options, string) error {
	return func(o *Options, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is no duration above zero", value)
		}
		*field(o) = d
		return nil
	}
}

func setStart(o *Options, value string) error {
	at, err := time.Parse(time.RFC3339, value)
	ms, notMillis := strconv.ParseInt(value, 10, 64)
	switch {
	case value == "earliest":
		o.Start = Start{}
	case value == "latest":
		o.Start = Start{Latest: true}
	case err == nil:
		o.Start = Start{Time: at}
	case notMillis == nil && ms >= 0:
		o.Start = Start{Time: time.UnixMilli(ms)}
	default:
		return fmt.Errorf("%q is none of earliest, latest, a time, milliseconds", value)
	}
	return nil
}

// flag sets a field to true or false.
func flag(field func(*Options) *bool) func(*Options, string) error {
	return choice(map[string]func(*Options){
		"true":  func(o *Options) { *field(o) = true },
		"false": func(o *Options) { *field(o) = false },
	})
}

// rules sets a field to what acl.ParseRules reads.
func rules(field func(*Options) *[]acl.Rule) func(*Options, string) error {
	return func(o *Options, value string) (err error) {
		*field(o), err = acl.ParseRules(value)
		return err
	}
}

// list sets a field to entries separated by commas.
func list(field func(*Options) *[]string) func(*Options, string) error { return separated(",", field) }

// separated sets a field to entries with sep between them.
func separated(sep string, field func(*Options) *[]string) func(*Options, string) error {
	return func(o *Options, value string) error {
		*field(o) = nil
		for entry := range strings.SplitSeq(value, sep) {
			if entry = strings.TrimSpace(entry); entry != "" {
				*field(o) = append(*field(o), entry)
			}
		}
		return nil
	}
}
