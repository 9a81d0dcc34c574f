package verify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// The Java client's own message sets are read as the Java client reads them, those
// too that the log cleaner has thinned out (testdata/old/Old.java).
func TestOldAsJavaReadsIt(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join("testdata", "old", "*.log"))
	if err != nil || len(logs) != 24 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	hex := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("'%x", b)
	}
	for _, file := range logs {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".log"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, ".log") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			n, _, err := checked(raw, 0)
			if err != nil || n != len(raw) {
				t.Fatalf("%d bytes of %d, %v", n, len(raw), err)
			}
			var got strings.Builder
			err = eachRecord(raw, &batch.Decoder{}, &oldDecoder{}, func(r batch.Record) {
				fmt.Fprintln(&got, r.Offset, r.Timestamp, hex(r.Key), hex(r.Value))
			})
			if d := cmp.Diff(string(want), got.String()); err != nil || d != "" {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}

func TestOldMalformed(t *testing.T) {
	rs := []batch.Record{{Offset: 5, Value: []byte("a")}, {Offset: 6, Value: make([]byte, 5000)}}
	wrapper := func(format int8, codec batch.Codec) []byte { return zoo.OldWrapper(format, codec, 5, rs, -1) }
	for name, c := range map[string]struct {
		bytes []byte
		limit int
		err   error
		says  string
	}{
		"too large, gzip":    {wrapper(1, batch.Gzip), 1000, batch.ErrLimit, "offset 6"},
		"too large, snappy":  {wrapper(0, batch.Snappy), 1000, batch.ErrLimit, "offset 6"},
		"too large, lz4":     {wrapper(0, batch.LZ4), 1000, batch.ErrLimit, "offset 6"},
		"wrapper in wrapper": {zoo.OldWrapped(1, batch.Gzip, 9, wrapper(1, batch.Gzip)), 0, cluster.ErrCorrupt, "compressed twice"},
		"other format":       {zoo.OldWrapped(1, batch.Gzip, 9, zoo.OldMessage(0, rs[0], false)), 0, cluster.ErrCorrupt, "format 0 inside of format 1"},
		"nothing inside":     {zoo.OldWrapped(1, batch.Gzip, 9, nil), 0, cluster.ErrCorrupt, "does not parse"},
		"cut off inside":     {zoo.OldWrapped(0, batch.Gzip, 9, zoo.OldMessage(0, rs[0], false)[:20]), 0, cluster.ErrCorrupt, "does not parse"},
		"offset too large":   {zoo.OldWrapped(1, batch.Gzip, 3, zoo.OldMessage(1, rs[0], false)), 0, cluster.ErrCorrupt, "relative offset 5"},
		"no such codec":      {zoo.OldWrapped(1, 7, 3, zoo.OldMessage(1, rs[0], false)), 0, cluster.ErrCorrupt, "codec 7"},
	} {
		t.Run(name, func(t *testing.T) {
			d := oldDecoder{limit: c.limit}
			if _, err := d.decode(c.bytes); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v that says %q", err, c.err, c.says)
			}
		})
	}
}
