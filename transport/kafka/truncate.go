package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// Truncation says what a destination does about records that have to go.
type Truncation int

const (
	// Refuse leaves the log as it is: the partition is FAILED and the operator decides.
	Refuse Truncation = iota
	// Rebuild allows the whole topic to be deleted, created again and copied from the
	// start. It gets a new topic id. Consumers of the topic see it disappear for a moment.
	Rebuild
)

// Traits of a destination that is written with produce requests.
func (c *Cluster) Traits() fetcher.Traits {
	fills := c.cfg.GapFill != GapFail
	t := fetcher.Traits{Gaps: fills, Fills: fills, LogAppendTime: fills, Truncation: fetcher.TruncateNever}
	if c.cfg.Truncation == Rebuild {
		t.Truncation = fetcher.TruncateRebuild
	}
	return t
}

// Truncate cannot be done by a client: errors.ErrUnsupported for every cut, with what
// can be done instead.
func (c *Cluster) Truncate(_ context.Context, cuts []fetcher.Cut) []error {
	errs := make([]error, len(cuts))
	for i, cut := range cuts {
		instead := "allow Config.Truncation Rebuild, or delete the topic, and it is copied anew"
		if c.cfg.Truncation == Rebuild {
			instead = fmt.Sprintf("topic %s has to be rebuilt", cut.Partition.Topic)
		}
		errs[i] = &cluster.OffsetError{Partition: cut.Partition, Span: cluster.Span{From: cut.Offset, To: cut.Offset}, Err: errors.ErrUnsupported,
			Detail: "Kafka lets no client cut the tail of a log: " + instead}
	}
	return errs
}
