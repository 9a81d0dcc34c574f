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
	// Join has Config.Truncater cut the log on all its replicas. The topic stays, and so
	// does its id; writers and readers are told to try again for a moment.
	Join
)

// Traits of a destination that is written with produce requests.
func (c *Cluster) Traits() fetcher.Traits {
	fills := c.cfg.GapFill != GapFail
	t := fetcher.Traits{Gaps: fills, Fills: fills, LogAppendTime: fills, Truncation: fetcher.TruncateNever}
	switch c.cfg.Truncation {
	case Rebuild:
		t.Truncation = fetcher.TruncateRebuild
	case Join:
		t.Truncation = fetcher.TruncateExact
	}
	return t
}

// Truncate is Config.Truncater's with Join. What is under way to the partitions ends with
// errors before, and nothing is taken until Ends has been asked again. Else it cannot be
// done by a client: errors.ErrUnsupported for every cut, with what can be done instead.
func (c *Cluster) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	if c.cfg.Truncation == Join {
		return c.truncate(ctx, cuts)
	}
	errs := make([]error, len(cuts))
	for i, cut := range cuts {
		instead := "allow Config.Truncation Join or Rebuild, or delete the topic, and it is copied anew"
		if c.cfg.Truncation == Rebuild {
			instead = fmt.Sprintf("topic %s has to be rebuilt", cut.Partition.Topic)
		}
		errs[i] = &cluster.OffsetError{Partition: cut.Partition, Span: cluster.Span{From: cut.Offset, To: cut.Offset}, Err: errors.ErrUnsupported,
			Detail: "Kafka lets no client cut the tail of a log: " + instead}
	}
	return errs
}

// truncate has tails cut by others. Nothing of ours lands meanwhile.
func (c *Cluster) truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	errs := make([]error, len(cuts))
	var quiet []fetcher.Cut
	var at []int
	for i, cut := range cuts {
		if errs[i] = c.retireLane(ctx, c.lane(cut.Partition)); errs[i] == nil {
			quiet, at = append(quiet, cut), append(at, i)
		}
	}
	if len(quiet) == 0 {
		return errs
	}
	for k, err := range c.cfg.Truncater.Truncate(ctx, quiet) {
		errs[at[k]] = err
		c.client.Stale(quiet[k].Partition.Topic) // it has had another leader
	}
	return errs
}
