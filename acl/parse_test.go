package acl

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRules(t *testing.T) {
	for text, want := range map[string][]Rule{
		"":                                  nil,
		"all":                               {{}},
		" resource=TOPIC ; all; ":           {{ResourceType: "TOPIC"}, {}},
		"pattern=MATCH,name=orders":         {{PatternType: "MATCH", Name: "orders"}},
		"principal=User:CN=app,OU=x,host=*": {{Principal: "User:CN=app,OU=x", Host: "*"}},
		"resource=GROUP, operation=READ,permission=DENY,name=a=b": {{ResourceType: "GROUP", Operation: "READ", Permission: "DENY", Name: "a=b"}},
	} {
		got, err := ParseRules(text)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v %s", text, err, d)
		}
	}
	for text, want := range map[string]string{
		"topic=orders":                       `rule "topic=orders": begins with none of resource=`,
		"all,name=x":                         "begins with none of",
		"name=":                              "name= is empty",
		"name=a,name=b":                      "name= is there twice",
		"resource=TOPICS;operation=SCRIBBLE": `operation=SCRIBBLE": Operation: "SCRIBBLE" is none of`,
		"principal=app":                      `"app" has not the form Type:name`,
	} {
		if _, err := ParseRules(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q: %v", text, want, err)
		}
	}
}

// FuzzParseRules: what is read can be written and read again.
func FuzzParseRules(f *testing.F) {
	f.Add("all;resource=TOPIC,principal=User:CN=a,OU=b;name=x,,host=,host")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules(text)
		if err != nil {
			return
		}
		var words []string
		for _, r := range rules {
			words = append(words, r.String())
		}
		again, err := ParseRules(strings.Join(words, ";"))
		if err != nil || !slices.Equal(rules, again) {
			t.Errorf("%q, then %q: %v", rules, again, err)
		}
	})
}
