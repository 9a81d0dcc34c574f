package kafka

import (
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// rewritten is a batch as one or several that can be produced, with holes between them
// where markers fill.
func (c *Cluster) rewritten(b *cluster.Batch, p *preparation, fill *topicFill) ([]cluster.Batch, error) {
	h := batch.Header(b.Bytes)
	if producible(h) && int64(h.Count()) == b.Next-b.Base {
		return []cluster.Batch{*b}, nil
	}
	return nil, &cluster.OffsetError{Span: cluster.Span{From: b.Base, To: b.Next}, Err: cluster.ErrGap}
}
