package logdir

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

var partition = cluster.Partition{Topic: "orders", Partition: 3}

// write lays out a log: segments by their first offset.
func write(t *testing.T, checkpoint string, segments map[int64][]byte) string {
	t.Helper()
	dir := t.TempDir()
	folder := filepath.Join(dir, "orders-3")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"leader-epoch-checkpoint": []byte(checkpoint)}
	for base, b := range segments {
		files[fmt.Sprintf("%020d.log", base)] = b
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func records(base int64, epoch int32, value string) []byte {
	return batch.Encode(batch.Spec{Base: base, LeaderEpoch: epoch, Records: []batch.Record{{Offset: base, Value: []byte(value)}}})
}

func read(t *testing.T, dir string) Log {
	t.Helper()
	l, err := Read(dir, partition)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDiff(t *testing.T) {
	both := append(records(10, 1, "a"), records(11, 4, "b")...)
	const checkpoint = "0\n2\n1 10\n4 11\n"
	whole := read(t, write(t, checkpoint, map[int64][]byte{10: both}))
	if whole.End() != 12 || len(whole.Batches) != 2 || whole.Epochs.At(11) != 4 {
		t.Fatalf("%+v", whole)
	}
	for name, c := range map[string]struct {
		other string
		want  string
	}{
		"other segments, half a batch at the end": {
			write(t, checkpoint, map[int64][]byte{10: records(10, 1, "a"), 11: append(records(11, 4, "b"), records(12, 4, "c")[:20]...)}), ""},
		"an epoch without a batch":    {write(t, "0\n3\n1 10\n4 11\n7 12\n", map[int64][]byte{10: both}), ""},
		"epochs that begin in a hole": {write(t, "0\n2\n1 3\n4 11\n", map[int64][]byte{10: both}), ""},
		"another record":              {write(t, checkpoint, map[int64][]byte{10: append(records(10, 1, "a"), records(11, 4, "B")...)}), "batch 1, [11,12) of 69 bytes and [11,12) of 69 bytes, differs from byte 17 on"},
		"another epoch":               {write(t, checkpoint, map[int64][]byte{10: append(records(10, 1, "a"), records(11, 5, "b")...)}), "batch 1, [11,12) of 69 bytes and [11,12) of 69 bytes, differs from byte 15 on"},
		"shorter":                     {write(t, checkpoint, map[int64][]byte{10: records(10, 1, "a")}), "2 batches up to 12 and 1 batches up to 11"},
		"other checkpoint":            {write(t, "0\n1\n1 10\n", map[int64][]byte{10: both}), "epochs begin at [1:10 4:11] and at [1:10]"},
	} {
		if got := Diff(whole, read(t, c.other)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := Diff(whole.From(11), read(t, write(t, "0\n1\n4 11\n", map[int64][]byte{11: records(11, 4, "b")}))); got != "" {
		t.Errorf("from 11 on: %s", got)
	}
	if got := Diff(whole.From(12), read(t, write(t, "0\n0\n", map[int64][]byte{12: nil}))); got != "" {
		t.Errorf("empty logs: %s", got)
	}
}

func TestFromFirstBatch(t *testing.T) {
	logs := append(append(records(10, 1, "a"), records(11, 4, "b")...), records(12, 4, "c")...)
	whole := read(t, write(t, "0\n2\n1 10\n4 11\n", map[int64][]byte{10: logs}))
	late := read(t, write(t, "0\n2\n1 10\n4 12\n", map[int64][]byte{10: logs}))
	if got := Diff(late, whole); got != "epochs begin at [1:10 4:12] and at [1:10 4:11]" {
		t.Errorf("before: %q", got)
	}
	if got := Diff(late.FromFirstBatch(), whole); got != "" {
		t.Errorf("a checkpoint that came late: %s", got)
	}
	if got := Diff(whole.FromFirstBatch(), late); got == "" {
		t.Error("a copy whose epoch begins late passes")
	}
}

func TestReadFails(t *testing.T) {
	if _, err := Read(t.TempDir(), partition); err == nil {
		t.Error("a log that is not there was read")
	}
	if _, err := Read(write(t, "0\n1\nx y\n", map[int64][]byte{0: nil}), partition); err == nil {
		t.Error("a checkpoint that is none was read")
	}
}
