package fetcher

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// EndOf is the offset after the last whole batch in b, which Reader.Read gave.
func EndOf(b []byte) (int64, error) {
	end := int64(-1)
	w := batch.Walk(b)
	for w.Next() {
		end = w.Header().Next()
	}
	if err := w.Err(); err != nil {
		return 0, err
	}
	if end < 0 {
		return 0, fmt.Errorf("%w: no whole batch", cluster.ErrUnavailable)
	}
	return end, nil
}
