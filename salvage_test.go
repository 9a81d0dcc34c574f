package mirror_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
)

// TestSalvageTo: one tail never takes the place of another, and one that cannot be read
// to its end leaves nothing behind.
func TestSalvageTo(t *testing.T) {
	dir := t.TempDir()
	save := mirror.SalvageTo(dir)
	broken := errors.New("read error")
	tail := func(err error, pieces ...string) error {
		return save(t.Context(), mirror.Tail{
			Mirror: "ab", Partition: orders, Span: cluster.Span{From: 7, To: 9},
			Batches: func(yield func([]byte, error) bool) {
				for _, p := range pieces {
					if !yield([]byte(p), nil) {
						return
					}
				}
				if err != nil {
					yield(nil, err)
				}
			},
		})
	}
	for _, s := range []struct {
		err    error
		pieces []string
		want   map[string]string
	}{
		{nil, []string{"one", "two"}, map[string]string{"00000000000000000007.log": "onetwo"}},
		{nil, []string{"onetwo"}, map[string]string{"00000000000000000007.log": "onetwo"}},
		{broken, []string{"half"}, map[string]string{"00000000000000000007.log": "onetwo"}},
		{nil, []string{"one"}, map[string]string{"00000000000000000007.log": "onetwo", "00000000000000000007.2.log": "one"}},
		{nil, []string{"one"}, map[string]string{"00000000000000000007.log": "onetwo", "00000000000000000007.2.log": "one"}},
		{nil, []string{"another"}, map[string]string{
			"00000000000000000007.log": "onetwo", "00000000000000000007.2.log": "one", "00000000000000000007.3.log": "another"}},
	} {
		if err := tail(s.err, s.pieces...); !errors.Is(err, s.err) {
			t.Fatalf("%q: %v", s.pieces, err)
		}
		files, err := os.ReadDir(filepath.Join(dir, "ab", "orders-0"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(dir, "ab", "orders-0", f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got[f.Name()] = string(b)
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", s.pieces, diff)
		}
	}
}
