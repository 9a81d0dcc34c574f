package kafkatest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKcat(t *testing.T) {
	for name, tc := range map[string]struct {
		out  string
		want []Line // nil for an error
	}{
		"null and empty": {"1 5 99 -1 0\n" + kcatEnd, []Line{{Partition: 1, Offset: 5, Time: "99", Key: Null}}},
		"binary":         {"0 0 1 3 2\na\nb\x00\nh=1" + kcatEnd, []Line{{Time: "1", Key: `a\x0Ab`, Value: `\x00\x0A`, Headers: "h=1"}}},
		"two": {"0 0 1 1 1\nab" + kcatEnd + "0 1 1 1 1\ncd" + kcatEnd,
			[]Line{{Time: "1", Key: "a", Value: "b"}, {Offset: 1, Time: "1", Key: "c", Value: "d"}}},
		"cut short": {"0 0 1 1 5\nab", nil},
		"no end":    {"0 0 1 1 1\nab", nil},
		"no head":   {"% ERROR\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseKcat([]byte(tc.out))
			if (err != nil) != (tc.want == nil) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseKcat(f *testing.F) {
	f.Add([]byte("0 0 1 3 2\na\nb\x00\nh=1" + kcatEnd))
	f.Add([]byte("1 5 99 -1 0\n" + kcatEnd))
	f.Fuzz(func(t *testing.T, out []byte) {
		lines, err := parseKcat(out)
		if err == nil && len(out) > 0 && len(lines) == 0 {
			t.Error("no line and no error")
		}
	})
}

func TestParseJava(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want Line
	}{
		"plain":       {"CreateTime:7\tPartition:1\tOffset:5\tNO_HEADERS\tk\tv", Line{1, 5, "CreateTime:7", "", "k", "v"}},
		"tab in name": {"CreateTime:7\tPartition:1\tOffset:5\ta\tb:1\tk\tv", Line{1, 5, "CreateTime:7", "a\tb:1", "k", "v"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseJava(tc.text)
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
	for _, text := range []string{"", "CreateTime:7\tPartition:1\tOffset:5\tk\tv", "x\tPartition:a\tOffset:5\th\tk\tv", "x\tPartition:1\tOffset:\th\tk\tv"} {
		if _, err := parseJava(text); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}

func TestParseStat(t *testing.T) {
	if got := parseStat([]byte("1 (a) b) S 1 1 1 0 -1 4 100 0 0 0 150 50 0 0 20 0")); got.Seconds() != 2 {
		t.Errorf("%v, want 2s", got)
	}
	if got := parseStat([]byte("nonsense")); got != 0 {
		t.Errorf("%v of nonsense", got)
	}
}
