package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror/verify"
)

func TestVerify(t *testing.T) {
	all := kfake.SeedTopics(2, "equal", "value", "behind", "empty")
	a := newCluster(t, "a", all, kfake.SeedTopics(1, "bare", "alone"))
	b := newCluster(t, "b", all, kfake.SeedTopics(1, "bare"))
	for _, c := range []string{a, b} {
		produce(t, c, "equal", 0, 1200, "same")
		produce(t, c, "value", 1, 2, "same")
		produce(t, c, "behind", 0, 4, "same")
	}
	produce(t, a, "value", 1, 1, "source")
	produce(t, b, "value", 1, 1, "destination")
	produce(t, a, "behind", 0, 3, "more")
	produce(t, a, "bare", 0, 3, "more")
	tests := []struct {
		name   string
		topics string
		code   int
		stdout string
		stderr string
	}{
		{"equal", "equal,empty", exitOK, `PARTITION  SOURCE    DESTINATION  COMPARED  RECORDS  RESULT
empty-0    [0,0)     [0,0)        [0,0)     0        equal
empty-1    [0,0)     [0,0)        [0,0)     0        equal
equal-0    [0,1200)  [0,1200)     [0,1200)  1,200    equal
equal-1    [0,0)     [0,0)        [0,0)     0        equal
`, ""},
		{"a value", "valu(e|x)", exitDifferent, `PARTITION  SOURCE  DESTINATION  COMPARED  RECORDS  RESULT
value-0    [0,0)   [0,0)        [0,0)     0        equal
value-1    [0,3)   [0,3)        [0,3)     2        DIFFERENT: 1 difference; offset 2: value differs: source "source-0", destination "destination-0"
`, "kafka-mirrors verify: 1 of 2 partitions different\n"},
		{"behind", "behind", exitOK, `PARTITION  SOURCE  DESTINATION  COMPARED  RECORDS  RESULT
behind-0   [0,7)   [0,4)        [0,4)     4        equal where both have records
behind-1   [0,0)   [0,0)        [0,0)     0        equal
`, ""},
		{"nothing in common", "bare", exitDifferent, `PARTITION  SOURCE  DESTINATION  COMPARED  RECORDS  RESULT
bare-0     [0,3)   [0,0)        [0,0)     0        DIFFERENT: nothing in common
`, "kafka-mirrors verify: 1 of 1 partition different\n"},
		{"no such topic", "none,equal", exitFailed, "", "kafka-mirrors verify: topic none: not at the source\n"},
		{"no match", "n.*", exitFailed, "", "kafka-mirrors verify: no topic of the source matches --topics\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := try(t, "verify", "--source", a, "--destination", b, "--topics", tt.topics)
			if diff := cmp.Diff([]any{tt.code, tt.stdout, tt.stderr}, []any{code, stdout, stderr}); diff != "" {
				t.Error(diff)
			}
		})
	}

	t.Run("not at the destination", func(t *testing.T) {
		code, stdout, stderr := try(t, "verify", "--source", a, "--destination", b, "--topics", "alone")
		if code != exitFailed || !strings.Contains(stdout, "NOT COMPARED: ") || !strings.Contains(stderr, "alone-0") {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("json", func(t *testing.T) {
		code, stdout, _ := try(t, "verify", "--source", a, "--destination", b, "--topics", "equal,value,bare", "--json")
		var got struct {
			Equal      bool
			Partitions []verify.Report
		}
		if err := json.Unmarshal([]byte(stdout), &got); err != nil {
			t.Fatalf("%v:\n%s", err, stdout)
		}
		equals := map[string]bool{}
		for _, r := range got.Partitions {
			equals[r.Partition.String()] = r.Equal
		}
		want := map[string]bool{"equal-0": true, "equal-1": true, "value-0": true, "value-1": false, "bare-0": false}
		if diff := cmp.Diff(want, equals); diff != "" || got.Equal || code != exitDifferent {
			t.Errorf("exit code %d, equal %v\n%s", code, got.Equal, diff)
		}
	})
}

func TestVerdict(t *testing.T) {
	bad := verify.Report{Different: 2}
	tests := []struct {
		name    string
		reports []verify.Report
		err     error
		want    int
	}{
		{"equal", []verify.Report{{Equal: true}}, nil, exitOK},
		{"different", []verify.Report{{Equal: true}, bad}, nil, exitDifferent},
		{"different and more", []verify.Report{bad}, errors.New("x"), exitDifferent},
		{"not compared", []verify.Report{{Error: "x"}}, errors.New("x"), exitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := exitOK
			var o *outcome
			if err := verdict(tt.reports, tt.err); errors.As(err, &o) {
				got = o.code
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}
