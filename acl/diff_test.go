package acl

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func topicsOnly(t testing.TB) *Filter {
	f, err := NewFilter([]Rule{{ResourceType: "TOPIC"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDiff(t *testing.T) {
	type bs = []cluster.Binding
	a, b, foreign := rule("a"), rule("b", prefixed, all), rule("foreign")
	for _, tt := range []struct {
		name                string
		source, destination bs
		owners              Owners
		remove              bool
		want                Changes
	}{
		{"in step", bs{a, b}, bs{b, a}, nil, true, Changes{}},
		{"missing, with all rights, once", bs{b, a, b}, nil, nil, false, Changes{Create: bs{a, b}}},
		{"a right more is another rule", bs{a, rule("a", all)}, bs{a}, nil, false, Changes{Create: bs{rule("a", all)}}},
		{"another pattern is another rule", bs{rule("a", prefixed)}, bs{a}, nil, true, Changes{Create: bs{rule("a", prefixed)}}},
		{"filtered", bs{rule("app", group), a}, nil, nil, false, Changes{Create: bs{a}}},
		{"C8.3: the destination's own stays", bs{a}, bs{a, foreign}, nil, true, Changes{}},
		{"ours is gone at the source", bs{a}, bs{a, b}, Owners{b: {"ab"}}, false, Changes{Left: bs{b}}},
		{"and is to be deleted", bs{a}, bs{a, b}, Owners{b: {"ab"}}, true, Changes{Delete: bs{b}}},
		{"another mirror's stays", bs{a}, bs{a, b}, Owners{b: {"cd"}}, true, Changes{}},
		{"held by both", bs{a}, bs{a, b}, Owners{b: {"ab", "cd"}}, true, Changes{Release: bs{b}}},
		{"held by both, not asked", bs{a}, bs{a, b}, Owners{b: {"ab", "cd"}}, false, Changes{Left: bs{b}}},
		{"wanted, created by another", bs{b}, bs{b}, Owners{b: {"cd"}}, false, Changes{Hold: bs{b}}},
		{"wanted, created by others than mirrors", bs{foreign}, bs{foreign}, nil, true, Changes{}},
		{"ours, deleted by somebody, still wanted", bs{a}, nil, Owners{a: {"ab"}}, false, Changes{Create: bs{a}}},
		{"another's, deleted by somebody, wanted", bs{a}, nil, Owners{a: {"cd"}}, false, Changes{Create: bs{a}}},
		{"ours, deleted by somebody, not wanted", bs{a}, bs{a}, Owners{b: {"ab"}}, false, Changes{Release: bs{b}}},
		{"a source that shows nothing", nil, bs{a, b}, Owners{a: {"ab"}, b: {"ab", "cd"}}, true, Changes{Left: bs{a, b}}},
		{"the filter no longer takes it in", bs{a}, bs{a, rule("app", group)}, Owners{rule("app", group): {"ab"}}, true, Changes{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Diff("ab", tt.source, tt.destination, tt.owners, topicsOnly(t), tt.remove)); d != "" {
				t.Error(d)
			}
		})
	}
}

// FuzzDiff: whatever three mirrors and an operator do, a rule that no mirror has created is never
// deleted (I12), one that another mirror holds stays, and what a mirror does leaves nothing to be done.
func FuzzDiff(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5})
	f.Add([]byte{0x13, 0x80, 0xff, 0x42, 0x42, 7, 9, 200})
	pool := []cluster.Binding{rule("a"), rule("a", prefixed), rule("b", all), rule("b", deny), rule("g", group), rule("*")}
	f.Fuzz(func(t *testing.T, script []byte) {
		names := []string{"ab", "cd", "ef"}
		sources, there, owners := map[string]map[cluster.Binding]bool{}, map[cluster.Binding]bool{}, Owners{}
		for _, n := range names {
			sources[n] = map[cluster.Binding]bool{}
		}
		for _, op := range script {
			b, name := pool[int(op>>4)%len(pool)], names[int(op>>2)%3]
			switch op & 3 {
			case 0: // somebody toggles a rule at a source
				toggle(sources[name], b)
			case 1: // somebody toggles a rule at the destination
				toggle(there, b)
			default:
				remove := op&3 == 3
				ch := Diff(name, keys(sources[name]), keys(there), owners, topicsOnly(t), remove)
				for _, gone := range ch.Delete {
					if !remove || !slices.Equal(owners[gone], []string{name}) || sources[name][gone] || gone.ResourceType != "TOPIC" {
						t.Fatalf("%s deletes %v, which %v hold", name, gone, owners[gone])
					}
				}
				play(ch, name, there, owners)
				for want := range sources[name] {
					if want.ResourceType == "TOPIC" && !there[want] {
						t.Fatalf("%s: %v is missing", name, want)
					}
				}
				again := Diff(name, keys(sources[name]), keys(there), owners, topicsOnly(t), remove)
				again.Left = nil
				if d := cmp.Diff(Changes{}, again); d != "" {
					t.Fatalf("%s: something is left to be done: %s", name, d)
				}
			}
		}
	})
}

func toggle(m map[cluster.Binding]bool, b cluster.Binding) {
	if m[b] {
		delete(m, b)
	} else {
		m[b] = true
	}
}

func keys(m map[cluster.Binding]bool) []cluster.Binding { return slices.Collect(maps.Keys(m)) }

// play does what changes say.
func play(ch Changes, name string, there map[cluster.Binding]bool, owners Owners) {
	for _, b := range slices.Concat(ch.Create, ch.Hold) {
		there[b] = true
		if !slices.Contains(owners[b], name) {
			owners[b] = append(slices.Clone(owners[b]), name)
		}
	}
	for _, b := range slices.Concat(ch.Release, ch.Delete) {
		owners[b] = slices.DeleteFunc(slices.Clone(owners[b]), func(n string) bool { return n == name })
		if len(owners[b]) == 0 {
			delete(owners, b)
		}
	}
	for _, b := range ch.Delete {
		delete(there, b)
	}
}
