package topics

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// text writes changes as "name=value", "-name" and, where somebody else had changed it,
// "!name=value".
func text(alter []Altered) string {
	var out []string
	for _, a := range alter {
		s := "-" + a.Name
		if a.To != nil {
			s = a.Name + "=" + *a.To
		}
		if a.Drift {
			s = "!" + s
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// ownOf reads "set | was | then".
func ownOf(s string) Own {
	parts := strings.Split(s+"||", "|")
	return Own{mapOf(strings.TrimSpace(parts[0])), mapOf(strings.TrimSpace(parts[1])), mapOf(strings.TrimSpace(parts[2]))}
}

func TestCompare(t *testing.T) {
	const defaults = "retention.ms=7 retention.bytes=-1 cleanup.policy=delete max.message.bytes=100 segment.ms=5 compression.type=producer message.timestamp.type=CreateTime"
	for _, tc := range []struct {
		name          string
		source, there string
		sourceDefault string
		defaults      string // at the destination, of what is not in there
		required      string
		own           string
		alter         string
		before, after string // own; empty: as own
		unknown       string
		differences   []Difference
	}{
		{name: "in step", source: "retention.ms=1", there: "retention.ms=1", own: "retention.ms=1"},
		{name: "in step without the mirror", source: "retention.ms=1", there: "retention.ms=1"},
		{name: "set", source: "retention.ms=1 segment.ms=2", there: "segment.ms=2", alter: "retention.ms=1", before: "retention.ms=1", after: "retention.ms=1"},
		{name: "changed at the source", source: "retention.ms=2", there: "retention.ms=1", own: "retention.ms=1", alter: "retention.ms=2", before: "retention.ms=2", after: "retention.ms=2"},
		{name: "its own value is overridden", source: "retention.ms=2", there: "retention.ms=1", alter: "retention.ms=2", before: "retention.ms=2", after: "retention.ms=2"},
		{name: "C6.7 edited by hand", source: "retention.ms=2", there: "retention.ms=9", own: "retention.ms=2", alter: "!retention.ms=2"},
		{name: "C6.7 taken away by hand", source: "retention.ms=2", own: "retention.ms=2", alter: "!retention.ms=2"},
		{name: "removed at the source", there: "retention.ms=2", own: "retention.ms=2", alter: "-retention.ms", before: "retention.ms=2", after: "-"},
		{name: "removed at the source, changed here", there: "retention.ms=3", own: "retention.ms=2", before: "-", after: "-"},
		{name: "removed at both", own: "retention.ms=2", before: "-", after: "-"},
		{name: "C6.3 the destination's own stay", there: "segment.ms=3 retention.ms=1", own: "retention.ms=1", source: "retention.ms=1"},
		{name: "after a crash before the change", source: "retention.ms=2", there: "retention.ms=2", own: "retention.ms=1", before: "retention.ms=2", after: "retention.ms=2"},
		{
			name: "C6.5 unknown settings", source: "new.setting=1 another=2 retention.ms=3", defaults: defaults, alter: "retention.ms=3",
			before: "retention.ms=3", after: "retention.ms=3", unknown: "another new.setting",
		},
		{
			name: "required, and held by default", source: "compression.type=zstd", required: "compression.type=producer", defaults: defaults,
			before: "||compression.type=zstd", after: "||compression.type=zstd",
		},
		{
			name: "required, and otherwise by default", required: "compression.type=producer", defaults: "compression.type=gzip", alter: "compression.type=producer",
			before: "compression.type=producer", after: "compression.type=producer",
		},
		{
			name: "required, and otherwise of its own", source: "compression.type=lz4", there: "compression.type=zstd", required: "compression.type=producer", defaults: defaults,
			alter:  "compression.type=producer",
			before: "compression.type=producer | compression.type=zstd | compression.type=lz4",
			after:  "compression.type=producer | compression.type=zstd | compression.type=lz4",
		},
		{
			name: "required, and in force", there: "compression.type=producer", required: "compression.type=producer", defaults: defaults,
			own: "compression.type=producer | compression.type=zstd",
		},
		{
			name: "required, and edited by hand", there: "compression.type=gzip", required: "compression.type=producer", defaults: defaults,
			own: "compression.type=producer", alter: "!compression.type=producer",
		},
		{name: "required, and not known there", required: "message.timestamp.after.max.ms=9", defaults: defaults},
		{
			name: "not required any more", there: "compression.type=producer", own: "compression.type=producer | compression.type=zstd",
			alter: "compression.type=zstd", before: "compression.type=producer | compression.type=zstd", after: "-",
		},
		{
			name: "defaults that differ", sourceDefault: "retention.ms=1 retention.bytes=-1 segment.ms=9 cleanup.policy=delete", there: "cleanup.policy=compact", defaults: defaults,
			differences: []Difference{{"cleanup.policy", "delete", "compact", 1}, {"retention.ms", "1", "7", 1}},
		},
		{
			name: "no difference where it is about to go", sourceDefault: "retention.ms=1", there: "retention.ms=2", own: "retention.ms=2", defaults: defaults,
			alter: "-retention.ms", before: "retention.ms=2", after: "-",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			own := ownOf(tc.own)
			source := ConfigsAnswer{Configs: configsOf(tc.source), Defaults: configsOf(tc.sourceDefault)}
			for _, n := range never {
				source.Configs = append(source.Configs, cluster.TopicConfig{Name: n, Value: "never"})
			}
			there := ConfigsAnswer{Configs: configsOf(tc.there), Defaults: configsOf(tc.defaults)}
			kept := own.clone()
			c := Compare("t", source, there, configsOf(tc.required), own)
			if got := text(c.Alter); got != tc.alter {
				t.Errorf("changes %q, want %q", got, tc.alter)
			}
			want := func(s string) Own {
				switch s {
				case "":
					return own
				case "-":
					return Own{}
				}
				return ownOf(s)
			}
			if !c.Before.Equal(want(tc.before)) || !c.After.Equal(want(tc.after)) {
				t.Errorf("before %+v\nafter %+v", c.Before, c.After)
			}
			if !own.Equal(kept) {
				t.Errorf("what was given has changed: %+v", own)
			}
			if diff := cmp.Diff(strings.Fields(tc.unknown), append([]string{}, c.Unknown...)); diff != "" {
				t.Errorf("unknown: %s", diff)
			}
			if diff := cmp.Diff(tc.differences, c.Differences); diff != "" {
				t.Errorf("differences: %s", diff)
			}
			for _, a := range c.Alter {
				have, explicit := values(there.Configs)[a.Name]
				if explicit != (a.From != nil) || explicit && have != *a.From || a.Topic != "t" {
					t.Errorf("%+v", a)
				}
			}
		})
	}
}

func TestPutBack(t *testing.T) {
	for _, tc := range []struct{ name, there, own, alter, after string }{
		{name: "set by the mirror alone", there: "compression.type=producer retention.ms=1", own: "compression.type=producer retention.ms=1", alter: "-compression.type", after: "retention.ms=1"},
		{name: "to the topic's own", there: "compression.type=producer", own: "compression.type=producer | compression.type=zstd", alter: "compression.type=zstd"},
		{name: "to the source's", there: "compression.type=producer", own: "compression.type=producer | compression.type=zstd | compression.type=lz4", alter: "compression.type=lz4"},
		{name: "to the source's, held by default until now", own: "|| compression.type=lz4", alter: "compression.type=lz4"},
		{name: "changed by others", there: "compression.type=gzip", own: "compression.type=producer | compression.type=zstd"},
		{name: "taken away by others", own: "compression.type=producer | compression.type=zstd"},
		{name: "others' from the start", there: "compression.type=gzip", own: "|| compression.type=lz4"},
		{name: "the same", there: "compression.type=producer", own: "compression.type=producer || compression.type=producer"},
		{name: "nothing owed", there: "compression.type=producer retention.ms=1", own: "retention.ms=1", after: "retention.ms=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			alter, after := PutBack("t", ConfigsAnswer{Configs: configsOf(tc.there)}, configsOf("compression.type=producer"), ownOf(tc.own))
			if text(alter) != tc.alter || !after.Equal(ownOf(tc.after)) {
				t.Errorf("changes %q, want %q; after %+v", text(alter), tc.alter, after)
			}
		})
	}
}

// FuzzCompare: after the changes a second comparison finds nothing to do, whoever had set
// what; what neither the source has nor the mirror has set stays; what is never copied is
// never touched.
func FuzzCompare(f *testing.F) {
	for _, s := range []string{"\x00", "\x01\x02\x03\x04\x05", "\x1b\x2d\x3f\x44\x55\x66\x77\x88\x99"} {
		f.Add([]byte(s), true)
	}
	names := []string{"retention.ms", "segment.ms", "compression.type", "min.insync.replicas", "remote.x", "cleanup.policy"}
	f.Fuzz(func(t *testing.T, seed []byte, tells bool) {
		pick := func(n int) map[string]string { // of each name nothing, or one of three values
			out := map[string]string{}
			for i, name := range names {
				if at := n*len(names) + i; at < len(seed) && seed[at]%4 > 0 {
					out[name] = string('0' + rune(seed[at]%4))
				}
			}
			return out
		}
		list := func(m map[string]string) (cs []cluster.TopicConfig) {
			for _, n := range slices.Sorted(maps.Keys(m)) {
				cs = append(cs, cluster.TopicConfig{Name: n, Value: m[n]})
			}
			return cs
		}
		source, there := pick(0), pick(1)
		own := Own{Set: pick(2), Was: pick(3), Then: pick(4)}
		required := configsOf("compression.type=1")
		answer := func(m map[string]string) ConfigsAnswer {
			a := ConfigsAnswer{Configs: list(m)}
			for _, n := range names {
				if _, ok := m[n]; tells && !ok {
					a.Defaults = append(a.Defaults, cluster.TopicConfig{Name: n, Value: "0"})
				}
			}
			return a
		}
		before := maps.Clone(there)
		c := Compare("t", answer(source), answer(there), required, own)
		for _, a := range c.Alter {
			if delete(there, a.Name); a.To != nil {
				there[a.Name] = *a.To
			}
			if a.To != nil && c.Before.Set[a.Name] != *a.To && c.Before.Set[a.Name] != before[a.Name] {
				t.Errorf("%v is done without being noted before: %+v", a, c.Before)
			}
		}
		for _, name := range names {
			_, mirrored := source[name]
			_, ours := own.Set[name]
			switch {
			case !copied(name) && !ours && there[name] != before[name]:
				t.Errorf("%s is never copied: %q became %q", name, before[name], there[name])
			case name != "compression.type" && !mirrored && !ours && there[name] != before[name]:
				t.Errorf("%s is the destination's own: %q became %q", name, before[name], there[name])
			case copied(name) && mirrored && name != "compression.type" && there[name] != source[name]:
				t.Errorf("%s is %q, the source says %q", name, there[name], source[name])
			}
		}
		again := Compare("t", answer(source), answer(there), required, c.After)
		if len(again.Alter) != 0 || !again.After.Equal(c.After) || !again.Before.Equal(c.After) {
			t.Errorf("a second time: %v, own %+v, was %+v", again.Alter, again.After, c.After)
		}
	})
}
