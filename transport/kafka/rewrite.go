package kafka

import (
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// converters rewrite what cannot be produced as it is. Each keeps its compressors.
var converters = sync.Pool{New: func() any { return new(batch.Converter) }}

// rewritten is a batch as one or several that can be produced, with holes between them
// where markers fill: compaction leaves batches with offsets that have no record, and the
// source's broker may have set the timestamps.
func (c *Cluster) rewritten(into []cluster.Batch, b cluster.Batch, fill *topicFill) ([]cluster.Batch, error) {
	if batch.Header(b.Bytes).Producible() {
		return append(into, b), nil
	}
	k := converters.Get().(*batch.Converter)
	defer converters.Put(k)
	k.MaxBytes, k.MaxOffsets, k.PhantomKey = fill.maxBytes, phantomRecords, fill.key
	if c.cfg.GapFill == GapPhantoms {
		return k.WithPhantoms(into, b)
	}
	return k.Pieces(into, b)
}
