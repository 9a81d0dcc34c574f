package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/verify"
)

// gives runs a command line and wants an exit code and texts in its output.
func gives(t *testing.T, code int, stdout, stderr []string, args ...string) string {
	t.Helper()
	got, out, err := try(t, args...)
	if got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for text, wants := range map[string][]string{out: stdout, err: stderr} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in:\n%s", want, text)
			}
		}
	}
	if len(stderr) == 0 && err != "" {
		t.Errorf("stderr: %s", err)
	}
	return out
}

func TestVerifyMirrorMaker(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "orders", "moved"))
	b := newCluster(t, "b", kfake.SeedTopics(1, "a.orders", "moved"))
	produce(t, a, "orders", 0, 30, "same")
	produce(t, b, "a.orders", 0, 30, "same")
	produce(t, b, "moved", 0, 3, "older")
	produce(t, a, "moved", 0, 30, "same")
	produce(t, b, "moved", 0, 30, "same")
	gives(t, exitFailed, []string{"orders-0", "NOT COMPARED"},
		[]string{"topic orders: the destination has a.orders instead, as MirrorMaker names copies; --destination-prefix a. compares it"},
		"verify", "--source", a, "--destination", b, "--topics", "orders")
	gives(t, exitOK, []string{"orders-0   [0,30)  [0,30)       [0,30)    30       equal"}, nil,
		"verify", "--source", a, "--destination", b, "--topics", "orders", "--destination-prefix", "a.")
	gives(t, exitDifferent, []string{"+3 from source offset 0 on; so MirrorMaker and others leave them"}, []string{"1 of 1 partition different"},
		"verify", "--source", a, "--destination", b, "--topics", "moved")
}

func TestVerifyPart(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "t")), newCluster(t, "b", kfake.SeedTopics(1, "t"))
	for _, c := range []string{a, b} {
		text := "one"
		if c == b {
			text = "another"
		}
		produce(t, c, "t", 0, 1, text) // differs
		produce(t, c, "t", 0, 20_000, "same")
	}
	args := func(more ...string) []string {
		return append([]string{"verify", "--source", a, "--destination", b, "--topics", "t"}, more...)
	}
	// Milliseconds since the time of the first record are offsets less one.
	since := time.UnixMilli(1_700_000_000_000 + 15_000).UTC().Format(time.RFC3339)
	gives(t, exitOK, []string{"[15001,20001)  5,000"}, nil, args("--since", since)...)
	gives(t, exitOK, []string{"[20001,20001)  0 "}, nil, args("--since", "24h")...)
	gives(t, exitDifferent, []string{"offset 0: value"}, []string{"1 of 1"}, args("--since", "2001-01-01T00:00:00Z")...)
	gives(t, exitOK, []string{"offsets looked at"}, nil, args("--since", since, "--sample", "30%")...)
	gives(t, exitOK, []string{"offsets looked at"}, nil, args("--since", since, "--sample", "0.3", "--sample-seed", "9")...)
	for _, bad := range [][]string{
		{"--sample", "0"}, {"--sample", "200%"}, {"--sample", "some"}, {"--since", "yesterday"}, {"--since", "-1h"}, {"--parallel", "0"},
	} {
		gives(t, exitUsage, nil, []string{bad[0] + ": "}, args(bad...)...)
	}
	gives(t, exitUsage, nil, []string{"--against: the file stands for the destination"}, args("--against", "x")...)
}

func TestVerifyStrict(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "t")), newCluster(t, "b", kfake.SeedTopics(1, "t"))
	produce(t, a, "t", 0, 6, "same")
	cl := client(t, b, kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range 6 { // a batch each
		r := &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "same-%d", i), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	gives(t, exitOK, []string{"6        equal"}, nil, "verify", "--source", a, "--destination", b, "--topics", "t")
	gives(t, exitDifferent, []string{"DIFFERENT: ", "offset 0: codec"}, []string{"1 of 1"}, "verify", "--source", a, "--destination", b, "--topics", "t", "--strict")
}

func TestVerifyChecksums(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(2, "t", "u"))
	b := newCluster(t, "b", kfake.SeedTopics(2, "t", "u"))
	for _, c := range []string{a, b} {
		produce(t, c, "t", 0, 500, "same")
		produce(t, c, "u", 1, 7, "same")
	}
	out := gives(t, exitOK, nil, nil, "verify", "--source", a, "--topics", ".*", "--checksums", "--json")
	written := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(written, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	both := gives(t, exitOK, nil, nil, "verify", "--source", a, "--destination", b, "--topics", ".*", "--checksums", "--json")
	var one, two struct {
		Partitions []struct{ SourceSum, DestinationSum *verify.Checksum }
	}
	if json.Unmarshal([]byte(out), &one) != nil || json.Unmarshal([]byte(both), &two) != nil || len(one.Partitions) != 4 {
		t.Fatalf("%s\n%s", out, both)
	}
	for i := range one.Partitions {
		if *one.Partitions[i].SourceSum != *two.Partitions[i].SourceSum || *two.Partitions[i].SourceSum != *two.Partitions[i].DestinationSum {
			t.Errorf("%+v, %+v, %+v", one.Partitions[i].SourceSum, two.Partitions[i].SourceSum, two.Partitions[i].DestinationSum)
		}
	}
	sum := one.Partitions[0].SourceSum.Sum.String()
	gives(t, exitOK, []string{"t-0", "[0,500)", sum}, nil, "verify", "--source", b, "--topics", "t", "--checksums")
	gives(t, exitOK, []string{"CHECKSUM", sum + "  equal"}, nil, "verify", "--source", a, "--destination", b, "--topics", "t", "--checksums")

	// Later, and with more records: the span is that of the file.
	produce(t, b, "t", 0, 9, "more")
	gives(t, exitOK, []string{sum + "  equal"}, nil, "verify", "--source", b, "--against", written)
	produce(t, a, "u", 0, 3, "source")
	produce(t, b, "u", 0, 3, "destination")
	out = gives(t, exitOK, nil, nil, "verify", "--source", a, "--topics", ".*", "--checksums", "--json")
	if err := os.WriteFile(written, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	gives(t, exitDifferent, []string{"u-0", "DIFFERENT", "equal"}, []string{"1 of 4 partitions different"}, "verify", "--source", b, "--against", written)
	gives(t, exitOK, []string{"equal"}, nil, "verify", "--source", b, "--against", written, "--topics", "t")
	produce(t, a, "t", 0, 20, "more than there")
	out = gives(t, exitOK, nil, nil, "verify", "--source", a, "--topics", "t", "--checksums", "--json")
	if err := os.WriteFile(written, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	gives(t, exitFailed, []string{"NOT COMPARED: t-0: only [0,509) is here of [0,520)"}, []string{"t-0"}, "verify", "--source", b, "--against", written)
	for file, says := range map[string]string{"none": "no such file", "empty": "has no checksum", "text": "is not what"} {
		path := filepath.Join(t.TempDir(), file)
		if file != "none" {
			text := map[string]string{"empty": "{}", "text": "hello"}[file]
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		gives(t, exitUsage, nil, []string{says}, "verify", "--source", b, "--against", path)
	}
	gives(t, exitUsage, nil, []string{"--since and --sample cannot"}, "verify", "--source", b, "--against", written, "--sample", "1%")
}

// On a terminal a line shows how far it is, and is gone at the end.
func TestVerifyOnATerminal(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "t"))
	produce(t, a, "t", 0, 2000, "same")
	c := start(t, 60, "verify", "--source", a, "--destination", a, "--topics", "t")
	if code := c.wait(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.err.String())
	}
	out := c.out.String()
	line, rest, ok := strings.Cut(out, "\r\x1b[KPARTITION")
	if !ok || !strings.HasPrefix(line, "\r\x1b[K0 of 1 partition | 0 records") || len([]rune(line)) > 60+4 || !strings.Contains(rest, "2,000") {
		t.Errorf("%q", out)
	}
	if !strings.Contains(c.err.String(), "1 of 1 partition | 2,000 records") || !strings.Contains(c.err.String(), "MB/s, in ") {
		t.Errorf("%q", c.err.String())
	}
}
