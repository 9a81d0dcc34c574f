package batch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/internal/batch"
)

// The Java library's own old formats: its framing of snappy, and its header checksums of
// lz4, which are wrong in format 0.
func TestConvertsWhatJavaWrote(t *testing.T) {
	names, err := filepath.Glob("testdata/java/old/*.log")
	if err != nil || len(names) != 12 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			in, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []batch.Record
			for i := range int64(40) {
				r := batch.Record{Offset: 1000 + i, Timestamp: 1_400_000_000_000 + i*30*86_400_000}
				if i%5 == 4 {
					r.Timestamp = -1
				}
				r.Key = [][]byte{nil, {}, fmt.Appendf(nil, "key %d", i)}[i%3]
				text := fmt.Appendf(nil, "value %d of the Java client", i)
				r.Value = [][]byte{nil, {}, text, text}[i%4]
				switch {
				case strings.Contains(name, "magic0"):
					r.Timestamp = -1
				case strings.Contains(name, "append"):
					r.Timestamp = 1_500_000_000_000
				}
				if i%7 != 5 {
					want = append(want, r)
				}
			}
			out, err := new(batch.Converter).Convert(in)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range out {
				if !strings.Contains(name, h.Codec().String()) {
					t.Errorf("%v", h.Codec())
				}
				rs, _ := seen(t, h)
				got = append(got, rs...)
			}
			same(t, want, got, "%s", name)
			if plain := strings.Contains(name, "none"); plain != (len(out) > 1) || !plain && (out[0].Base() != 1000 || out[0].Next() != 1040) {
				t.Errorf("%d batches", len(out))
			}
		})
	}
}
