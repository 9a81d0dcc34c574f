package bench

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"
)

// TestBars: which promises a row is held to, and when one is missed.
func TestBars(t *testing.T) {
	runs := func(mirror, pipe, loop float64) map[string][]run {
		of := func(cpu ...float64) (out []run) {
			for _, c := range cpu {
				out = append(out, run{usage: usage{CPU: c}})
			}
			return out
		}
		return map[string][]run{"mirror": of(9*mirror, mirror, mirror/9), "pipe": of(pipe, pipe, 100), "loop": of(loop)}
	}
	tests := []struct {
		name string
		set  set
		runs map[string][]run
		want []string
	}{
		{"small uncompressed batches", set{name: "a", codec: "none", batch: 16 << 10}, runs(3, 1, 2),
			[]string{"holds   a mirror/pipe: 3.00, bar 3.5"}},
		{"small compressed batches", set{name: "b", codec: "lz4", batch: 16 << 10}, runs(4, 1, 5),
			[]string{"MISSED  b mirror/pipe: 4.00, bar 3.5", "holds   b mirror/loop: 0.80, bar 1.0"}},
		{"batches between", set{name: "c", codec: "none", batch: 64 << 10}, runs(4, 1, 2),
			[]string{"MISSED  c mirror/loop: 2.00, bar 1.0"}},
		{"large batches", set{name: "d", codec: "none", batch: 256 << 10}, runs(2.5, 1, 2.5),
			[]string{"MISSED  d mirror/pipe: 2.50, bar 2.0", "holds   d mirror/loop: 1.00, bar 1.0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, b := range (row{set: tt.set, wire: 1e9, runs: tt.runs}).bars() {
				got = append(got, b.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFill: batches compress to about a half, large ones no better than small
// ones; otherwise the sizes of compressed batches would be far from their names.
func TestFill(t *testing.T) {
	for _, records := range []int{16, 512} {
		var batch []byte
		for i := range records {
			value := make([]byte, 1000)
			fill(value, uint64(i))
			batch = append(batch, value...)
		}
		out := make([]byte, lz4.CompressBlockBound(len(batch)))
		n, err := lz4.CompressBlock(batch, out, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ratio := float64(n) / float64(len(batch)); ratio < 0.4 || ratio > 0.65 {
			t.Errorf("%d records compress to %.2f of their size", records, ratio)
		}
	}
}

// TestMeters: the figures a child takes of itself are there.
func TestMeters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file") // or a process that has just begun may have read and written nothing
	if err := os.WriteFile(file, []byte("written"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ file, format string }{
		{"status", "VmHWM: %d kB"}, {"io", "rchar: %d"}, {"io", "syscr: %d"}, {"io", "syscw: %d"},
	} {
		if n := procLine(m.file, m.format); n <= 0 {
			t.Errorf("%s: %q is %d", m.file, m.format, n)
		}
	}
	if m := look(); m.all <= m.busy || m.busy <= 0 {
		t.Errorf("the machine's clocks are %+v", m)
	}
}
