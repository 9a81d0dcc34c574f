package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestProperties(t *testing.T) {
	tests := []struct {
		name, text string
		want       []property
	}{
		{"empty", "", nil},
		{"comments and blanks", "# a=b\n  ! c=d\n\n \t\f\nk=v", []property{{"k", "v", 5}}},
		{"separators", "a=1\nb:2\nc 3\nd = 4\ne\t:\t5\nf  6 = 7\ng==8\nh", []property{
			{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}, {"d", "4", 4}, {"e", "5", 5}, {"f", "6 = 7", 6}, {"g", "=8", 7}, {"h", "", 8}}},
		{"trailing blanks stay", "a=1 \t", []property{{"a", "1 \t", 1}}},
		{"ends of lines", "a=1\r\nb=2\rc=3", []property{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}}},
		{"goes on", "a=1,\\\n   2,\\\r\n\t3\nb=4", []property{{"a", "1,2,3", 1}, {"b", "4", 4}}},
		{"what goes on is no comment", "a=1\\\n#2", []property{{"a", "1#2", 1}}},
		{"a comment does not go on", "# a\\\nb=1", []property{{"b", "1", 2}}},
		{"a backslash that is escaped", "a=1\\\\\nb=2", []property{{"a", "1\\", 1}, {"b", "2", 2}}},
		{"goes on into nothing", "a=1\\", []property{{"a", "1", 1}}},
		{"goes on into a blank line", "a=1\\\n\nb=2", []property{{"a", "1", 1}, {"b", "2", 3}}},
		{"escapes", `a\ b\=\:c=\t\n\r\f\\\q\"`, []property{{"a b=:c", "\t\n\r\f\\q\"", 1}}},
		{"unicode", `a=\u00e9\uD83D\uDE00`, []property{{"a", "é😀", 1}}},
		{"twice", "a=1\na=2", []property{{"a", "1", 1}, {"a", "2", 2}}},
		{"no key", "=1", []property{{"", "1", 1}}},
		{"a comment may be of any letters", "# é\na=1", []property{{"a", "1", 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseProperties(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(property{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPropertiesRefused: every bad line by its number, none of its text.
func TestPropertiesRefused(t *testing.T) {
	got, err := parseProperties("a=secret\\u12\nb=2\nc=secreté\nd=\\ud800secret\ne=\\u+123\nf=\\é")
	want := `line 1: \u needs four hexadecimal digits
line 3: holds a character outside ASCII; write it as \uXXXX
line 4: half of a surrogate pair at character 1
line 5: \u needs four hexadecimal digits
line 6: holds a character outside ASCII; write it as \uXXXX`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]property{{"b", "2", 2}}, got, cmp.AllowUnexported(property{})); diff != "" {
		t.Error(diff)
	}
}

// FuzzProperties: what is parsed can be written and is parsed as the same again.
func FuzzProperties(f *testing.F) {
	for _, seed := range []string{"a=b", "a\\\n b : c\\u00e9", "#x\r\n=\\", "\\ \\", "a=\\uD83D\\uDE00", "\\\n\\\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, err := parseProperties(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") {
				t.Fatalf("an error without a line: %v", err)
			}
			return
		}
		var b strings.Builder
		for _, p := range first {
			if !utf8.ValidString(p.key+p.value) || p.line < 1 {
				t.Fatalf("%+v", p)
			}
			fmt.Fprintf(&b, "%s=%s\n", escaped(p.key), escaped(p.value))
		}
		second, err := parseProperties(b.String())
		if err != nil {
			t.Fatalf("%q: %v", b.String(), err)
		}
		for i := range second {
			second[i].line = first[min(i, len(first)-1)].line
		}
		if diff := cmp.Diff(first, second, cmp.AllowUnexported(property{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// escaped writes every character but letters as Unicode escapes.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z':
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func TestJAAS(t *testing.T) {
	const plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
	tests := []struct {
		name, text, module string
		username, password string
		err                string
	}{
		{name: "plain", text: plain + ` required username="bob" password="p=;w";`, username: "bob", password: "p=;w"},
		{name: "lines and escapes", text: plain + "\n  REQUIRED\n username = \"b\\\"ob\"\n password=\"\\\\x\\n\" ;", username: `b"ob`, password: "\\x\n"},
		{name: "no quotes", text: plain + " required username=bob password=x;", username: "bob", password: "x"},
		{name: "other module", text: plain + ` required username="bob" password="hidden";`, module: "ScramLoginModule", err: "the mechanism needs ScramLoginModule"},
		{name: "no end", text: plain + ` required username="bob" password="hidden"`, err: `want: module required username="..." password="...";`},
		{name: "open quote", text: plain + ` required username="bob" password="hidden;`, err: "a quote is not closed"},
		{name: "no flag", text: plain + ` username="bob" password="hidden";`, err: `the word after the module must be "required"`},
		{name: "two modules", text: plain + " required username=a password=hidden; " + plain + " required;", err: `options are written key="value", and only one module is allowed`},
		{name: "twice", text: plain + " required username=a username=hidden;", err: "option username is given twice"},
		{name: "other options", text: plain + " required tokenauth=hidden;", err: "option tokenauth is not supported\noption username is needed\noption password is needed"},
		{name: "empty", text: "", err: `want: module required username="..." password="...";`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			module := "PlainLoginModule"
			if tt.module != "" {
				module = tt.module
			}
			var username, password, text string
			l, err := parseJAAS(tt.text)
			if err == nil {
				username, password, err = l.credentials(module)
			}
			if err != nil {
				username, password, text = "", "", err.Error()
			}
			if diff := cmp.Diff([]string{tt.username, tt.password, tt.err}, []string{username, password, text}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzJAAS: a quoted value comes out as it went in, and nothing panics.
func FuzzJAAS(f *testing.F) {
	f.Add("a.PlainLoginModule required username=\"x\" password=\"y\";", "secret\\\"")
	f.Add("x required =;", "\n")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if l, err := parseJAAS(text); err == nil && (l.module == "" && !strings.Contains(text, `""`) || l.options == nil) {
			t.Fatalf("%q gives %+v", text, l)
		}
		quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(secret)
		l, err := parseJAAS(`m required k="` + quote + `";`)
		if err != nil || l.options["k"] != secret {
			t.Fatalf("%q came out as %q, %v", secret, l.options["k"], err)
		}
	})
}
