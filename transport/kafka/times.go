package kafka

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
)

var _ fetcher.Times = (*Cluster)(nil)

// OffsetsForTime gives for each partition the first offset below the high watermark
// whose record has the timestamp or a later one, -1 when there is none. A time before
// 1970 means 1970: Kafka has other uses for negative ones.
func (c *Cluster) OffsetsForTime(ctx context.Context, partitions []cluster.Partition, ms int64) ([]fetcher.TimeAnswer, error) {
	answers := make([]fetcher.TimeAnswer, len(partitions))
	errs := c.atLeaders(ctx, partitions, slotAsk, func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error {
		return listOffsets(ctx, conn, partitions, idx, errs, max(0, ms), consumer, func(i int, o int64) { answers[i].Offset = o })
	})
	for i, err := range errs {
		if err != nil {
			answers[i] = fetcher.TimeAnswer{Offset: -1, Err: err}
		}
	}
	return answers, ctx.Err()
}
