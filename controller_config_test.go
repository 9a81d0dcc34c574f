package mirror

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// TestConfig: each key overrides what every mirror of the Controller has, both ways,
// and changes nothing else.
func TestConfig(t *testing.T) {
	all := Options{
		NoGroups: true, NoConfigs: true, DiscardLocalWrites: true, Scratch: true, SyncInterval: time.Hour, RetryMin: time.Minute, RetryMax: time.Hour,
		UncleanRecovery: []string{"x"}, Start: Start{Latest: true}, Fetch: fetcher.Options{RetentionGap: fetcher.RetentionFail},
	}
	named := Options{ACLs: ACLs{Include: []acl.Rule{{}}}, Guard: Guard{May: []string{"User:mirror"}}}
	access := Options{
		ACLs: ACLs{Sync: true, Delete: true, Include: []acl.Rule{{}}}, Guard: Guard{On: true, May: []string{"User:x"}, Open: true, SuperUsers: true},
	}
	tests := []struct {
		key, value string
		base       Options
		want       func(o *Options)
	}{
		{"acls.delete", "true", Options{}, func(o *Options) { o.ACLs.Delete = true }},
		{"acls.enabled", "true", named, func(o *Options) { o.ACLs.Sync = true }},
		{"acls.enabled", "false", access, func(o *Options) { o.ACLs.Sync = false }},
		{"acls.exclude", "resource=GROUP; principal=User:CN=x,OU=y", Options{}, func(o *Options) {
			o.ACLs.Exclude = []acl.Rule{{ResourceType: "GROUP"}, {Principal: "User:CN=x,OU=y"}}
		}},
		{"acls.include", "resource=TOPIC,pattern=PREFIXED,name=orders", access, func(o *Options) {
			o.ACLs.Include = []acl.Rule{{ResourceType: "TOPIC", PatternType: "PREFIXED", Name: "orders"}}
		}},
		{"acls.interval", "5s", Options{}, func(o *Options) { o.ACLs.Interval = 5 * time.Second }},
		{"configs.enabled", "false", Options{}, func(o *Options) { o.NoConfigs = true }},
		{"configs.enabled", "true", all, func(o *Options) { o.NoConfigs = false }},
		{"configs.interval", "15s", all, func(o *Options) { o.ConfigInterval = 15 * time.Second }},
		{"groups.enabled", "false", Options{}, func(o *Options) { o.NoGroups = true }},
		{"groups.enabled", "true", all, func(o *Options) { o.NoGroups = false }},
		{"groups.exclude", "test-.*", Options{}, func(o *Options) { o.Groups.Exclude = []string{"test-.*"} }},
		{"groups.include", "app, console-consumer-1", all, func(o *Options) { o.Groups.Include = []string{"app", "console-consumer-1"} }},
		{"groups.interval", "5s", all, func(o *Options) { o.GroupInterval = 5 * time.Second }},
		{"guard.enabled", "true", named, func(o *Options) { o.Guard.On = true }},
		{"guard.enabled", "false", access, func(o *Options) { o.Guard.On = false }},
		{"guard.interval", "5s", Options{}, func(o *Options) { o.Guard.Interval = 5 * time.Second }},
		{"guard.may", "User:CN=m,OU=y; User:n ;", access, func(o *Options) { o.Guard.May = []string{"User:CN=m,OU=y", "User:n"} }},
		{"guard.open", "false", access, func(o *Options) { o.Guard.Open = false }},
		{"guard.superusers", "false", access, func(o *Options) { o.Guard.SuperUsers = false }},
		{"local.writes", "discard", Options{}, func(o *Options) { o.DiscardLocalWrites = true }},
		{"local.writes", "refuse", all, func(o *Options) { o.DiscardLocalWrites = false }},
		{"retention.gap", "fail", Options{}, func(o *Options) { o.Fetch.RetentionGap = fetcher.RetentionFail }},
		{"retention.gap", "continue", all, func(o *Options) { o.Fetch.RetentionGap = fetcher.RetentionContinue }},
		{"retry.max", "10m", Options{}, func(o *Options) { o.RetryMax = 10 * time.Minute }},
		{"retry.min", "90s", all, func(o *Options) { o.RetryMin = 90 * time.Second }},
		{"scratch", " allow ", Options{}, func(o *Options) { o.Scratch = true }},
		{"scratch", "refuse", all, func(o *Options) { o.Scratch = false }},
		{"start", "latest", Options{}, func(o *Options) { o.Start = Start{Latest: true} }},
		{"start", "earliest", all, func(o *Options) { o.Start = Start{} }},
		{"start", "2026-09-18T05:43:03Z", all, func(o *Options) { o.Start = Start{Time: time.Date(2026, 9, 18, 5, 43, 3, 0, time.UTC)} }},
		{"start", "1000", Options{}, func(o *Options) { o.Start = Start{Time: time.UnixMilli(1000)} }},
		{"sync.interval", "15s", all, func(o *Options) { o.SyncInterval = 15 * time.Second }},
		{"unclean.recovery", "orders, pay.* ,", all, func(o *Options) { o.UncleanRecovery = []string{"orders", "pay.*"} }},
		{"unclean.recovery", "", all, func(o *Options) { o.UncleanRecovery = nil }},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.key+"="+tt.value, func(t *testing.T) {
			seen[tt.key] = true
			c := &Controller{opts: ControllerOptions{Mirrors: tt.base}}
			got, err := c.options(coordinator.Definition{Config: map[string]string{tt.key: tt.value}})
			if err != nil {
				t.Fatal(err)
			}
			want := tt.base
			tt.want(&want)
			if cmp.Equal(want, tt.base, optionFields) {
				t.Error("the case changes nothing")
			}
			if diff := cmp.Diff(want, got, optionFields); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
	keys := ConfigKeys()
	for _, k := range keys {
		if !seen[k.Name] {
			t.Errorf("key %s has no case", k.Name)
		}
		if k.Values == "" || k.Meaning == "" {
			t.Errorf("key %s is not documented", k.Name)
		}
		if k.Default == "" {
			continue
		}
		var o Options
		if err := k.set(&o, k.Default); err != nil {
			t.Errorf("key %s: its default is refused: %v", k.Name, err)
		}
		before, _, _ := new(Options).normalize()
		after, _, _ := o.normalize()
		if diff := cmp.Diff(before, after, optionFields); diff != "" {
			t.Errorf("key %s: its default is not what holds without it (-without +with):\n%s", k.Name, diff)
		}
	}
	if !slices.IsSortedFunc(keys, func(a, b ConfigKey) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("keys are not in order")
	}
}

// optionFields leaves out what no key sets.
var optionFields = cmp.Options{
	cmpopts.IgnoreFields(Options{}, "Topics", "Store", "Events", "Logger", "Salvage", "Positions"),
	cmpopts.IgnoreFields(fetcher.Options{}, "Logger"),
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b Start) bool { return a.Latest == b.Latest && a.Time.Equal(b.Time) }),
}

func TestConfigRefuses(t *testing.T) {
	for key, values := range map[string][]string{
		"acls.enabled":     {"true"}, // without acls.include
		"acls.include":     {"orders", "resource=TOPICS"},
		"groups.enabled":   {"", "yes", "True"},
		"guard.enabled":    {"true"}, // without guard.may
		"local.writes":     {"", "keep"},
		"retention.gap":    {"ignore"},
		"retry.max":        {"", "5", "0s", "-1s"},
		"scratch":          {"true"},
		"start":            {"", "-1", "now", "2026-09-18"},
		"sync.interval":    {"1 hour"},
		"unclean.recovery": {"("},
		"retry.minimum":    {"1s"},
	} {
		for _, value := range values {
			t.Run(key+"="+value, func(t *testing.T) {
				c := &Controller{}
				if _, err := c.options(coordinator.Definition{Config: map[string]string{key: value}}); err == nil {
					t.Error("was taken")
				}
			})
		}
	}
}

// TestByTopic: an operation's error is sorted by topics to the last one.
func TestByTopic(t *testing.T) {
	one, two := topicError("stop", "m", "one", ErrTimeout), topicError("stop", "m", "two", ErrFenced)
	of := map[string][]error{}
	rest := byTopic(errors.Join(fault("stop", "m", errors.Join(ErrUnreachable, two)), one, one, nil, fault("stop", "m", ErrNotRunning)), of)
	if len(of["one"]) != 2 || len(of["two"]) != 1 || len(of) != 2 {
		t.Errorf("by topic %v", of)
	}
	if len(rest) != 2 || rest[0] != ErrUnreachable {
		t.Errorf("the rest is %v", rest)
	}
}
