package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// TruncateConfig says in which cluster tails are cut, and as whom.
type TruncateConfig struct {
	// Membership is which cluster, and who we are there for a moment. Ours is not given.
	Membership Config
	// Server is what our listeners bear. Default: see ServerConfig.
	Server ServerConfig
	// Listeners accept at the addresses of Membership.Listeners, in their order. They
	// are closed when Truncate returns.
	Listeners []net.Listener
	// TLS is used by the listener of the same index. Default: nil, plain TCP.
	TLS []*tls.Config
	// Overrides keeps which topics are in our hands, and which cuts are under way, until
	// they are given back. It is not that of a Destination.
	Overrides Overrides

	// Salvage is handed what goes before it is cut, in whole batches as the log has
	// them; the first may begin before the span. What is written between that and our
	// taking over comes as a span of its own. An error keeps the partition from being
	// cut. It may be called for several partitions at once. Default: nothing is saved.
	Salvage func(ctx context.Context, p cluster.Partition, span cluster.Span, batches iter.Seq2[[]byte, error]) error
	// DryRun looks and changes nothing: the process does not become a broker.
	DryRun bool
	// Progress hears of each partition's steps, from several goroutines. Default: nobody.
	Progress func(p cluster.Partition, step TruncateStep)
	// Logger hears of what happens. Default: silent.
	Logger *slog.Logger

	mirrored bool // see Truncater
}

// TruncateStep is how far the cut of a partition has come.
type TruncateStep uint8

// The steps, in their order.
const (
	TruncateLooked   TruncateStep = iota // it is known what goes, and what is read of it by now is saved
	TruncateLed                          // we lead, nobody can write
	TruncateCut                          // all replicas have cut
	TruncateReturned                     // a real broker leads, we are no replica any more
)

func (s TruncateStep) String() string {
	return [...]string{"looked at", "taken over", "cut", "given back"}[s]
}

// Truncation is what a cut does to one partition, or has done.
type Truncation struct {
	Partition cluster.Partition
	// Offset was asked for. From At on everything goes: that is where the batch begins
	// that holds Offset. LogStart and LogEnd are those before the cut.
	Offset, At, LogStart, LogEnd int64
	// Leader, Replicas and InSync are those before the cut.
	Leader           int32
	Replicas, InSync []int32
	// Batches and Bytes that go, as far as they can be read.
	Batches, Bytes int64
	// Opened are the producers of transactions that end behind At and have records before
	// it: without their marker they are open, and hold back readers of committed records
	// until somebody aborts them (kafka-transactions.sh abort). Of those that begin more than
	// 5,000 offsets before At it is known only when none of their records goes.
	Opened []int64
	// Earlier: an earlier call has cut it, and did not come to its end.
	Earlier bool
	// Took is from our becoming a replica until we are none any more, Leaderless that
	// part of it in which no real broker led.
	Took, Leaderless time.Duration
	Err              error
}

// Nothing reports that there is nothing to cut.
func (t Truncation) Nothing() bool { return t.At >= t.LogEnd || t.Earlier }

// Truncate cuts the tails of partitions that real brokers lead, on all their replicas:
// everything from the batch on that holds an offset, also below the high watermark. It
// becomes a broker of the cluster for a moment, takes the partitions over, has the
// replicas cut, and gives them back; producers and consumers are told to try again
// meanwhile. The answers are in the order of the cuts.
//
// Nothing is changed unless all cuts are possible: the partition exists, is none of
// Kafka's own or of tiered storage, all its replicas are on brokers that are up, and it
// is not being moved (cluster.ErrRefused, ErrUnavailable and others, in each
// Truncation.Err). The error is why nothing could be done, or why we are still a broker.
//
// If it dies in between, real brokers lead again when our session has ended, with the
// tail or without it, the same on all replicas. The same call with the same Overrides
// and Identities goes on, and does not touch what was written after a cut that was made.
// What an earlier call has begun with, and this one does not name, is given back as it is,
// and nothing is remembered of it.
func Truncate(ctx context.Context, cfg TruncateConfig, cuts []fetcher.Cut) ([]Truncation, error) {
	defer func() {
		for _, l := range cfg.Listeners {
			l.Close()
		}
	}()
	if err := cfg.validate(cuts); err != nil {
		return nil, err
	}
	plans, err := truncate(ctx, cfg, cuts)
	out := make([]Truncation, len(plans))
	for i, p := range plans {
		out[i] = p.Truncation
	}
	return out, err
}

func truncate(ctx context.Context, cfg TruncateConfig, cuts []fetcher.Cut) ([]*cutPlan, error) {
	if err := othersTopics(ctx, cfg.Overrides); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	plans, err := survey(ctx, cfg, cuts)
	if err != nil || cfg.DryRun || !cfg.mirrored && len(sound(plans)) < len(plans) {
		return plans, err
	}
	if len(left(plans)) == 0 && cfg.mirrored {
		if over, err := cfg.over(ctx); over || err != nil {
			return plans, err
		}
	}
	return plans, carryOut(ctx, cfg, plans)
}

// over: no earlier call has left anything in our hands, or us a broker.
func (c TruncateConfig) over(ctx context.Context) (bool, error) {
	topics, err := c.Overrides.Topics(ctx)
	if err != nil {
		return false, fmt.Errorf("what is in our hands: %w", err)
	}
	kept, err := c.Membership.Identities.All(ctx)
	if err != nil {
		return false, fmt.Errorf("loading our identity: %w", err)
	}
	return len(topics) == 0 && len(kept) == 0, nil
}

func (c TruncateConfig) withDefaults() TruncateConfig {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Membership.Logger = cmp.Or(c.Membership.Logger, c.Logger)
	c.Membership = c.Membership.servedBy(c.Server, c.TLS)
	return c
}

// validate reports all that is wrong with a call.
func (c TruncateConfig) validate(cuts []fetcher.Cut) error {
	errs := []error{c.check(), checkCuts(cuts)}
	if !c.DryRun && len(c.Listeners) != len(c.Membership.Listeners) {
		errs = append(errs, fmt.Errorf("Listeners: %d for the %d of Membership", len(c.Listeners), len(c.Membership.Listeners)))
	}
	return errors.Join(errs...)
}

// check is the part that does not depend on what is cut.
func (c TruncateConfig) check() error {
	errs := []error{c.Membership.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Membership.Ours != nil {
		bad("Membership.Ours: must not be given")
	}
	if len(c.TLS) > len(c.Membership.Listeners) {
		bad("TLS: %d for %d Listeners", len(c.TLS), len(c.Membership.Listeners))
	}
	if c.Overrides == nil {
		bad("Overrides: without a memory of what is under way nothing is found again after a crash")
	}
	return errors.Join(errs...)
}

func checkCuts(cuts []fetcher.Cut) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen := make(map[cluster.Partition]bool)
	for _, cut := range cuts {
		if cut.Offset < 0 {
			bad("%v: offset %d is negative", cut.Partition, cut.Offset)
		}
		if seen[cut.Partition] {
			bad("%v: is to be cut twice", cut.Partition)
		}
		seen[cut.Partition] = true
	}
	if len(cuts) == 0 {
		bad("no partition is to be cut")
	}
	return errors.Join(errs...)
}

func (c TruncateConfig) tell(p cluster.Partition, s TruncateStep) {
	if c.Progress != nil {
		c.Progress(p, s)
	}
}
