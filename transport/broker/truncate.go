package broker

import (
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
	if err := othersTopics(ctx, cfg.Overrides); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Membership.Logger == nil {
		cfg.Membership.Logger = cfg.Logger
	}
	plans, err := survey(ctx, cfg, cuts)
	out := make([]Truncation, len(plans))
	possible := true
	for _, p := range plans {
		possible = possible && p.Err == nil
	}
	if err == nil && possible && !cfg.DryRun {
		err = carryOut(ctx, cfg, plans)
	}
	for i, p := range plans {
		out[i] = p.Truncation
	}
	return out, err
}

func (c TruncateConfig) validate(cuts []fetcher.Cut) error {
	errs := []error{c.Membership.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Membership.Ours != nil {
		bad("Membership.Ours: must not be given")
	}
	if !c.DryRun && len(c.Listeners) != len(c.Membership.Listeners) {
		bad("Listeners: %d for the %d of Membership", len(c.Listeners), len(c.Membership.Listeners))
	}
	if len(c.TLS) > len(c.Listeners) {
		bad("TLS: %d for %d Listeners", len(c.TLS), len(c.Listeners))
	}
	if c.Overrides == nil {
		bad("Overrides: without a memory of what is under way nothing is found again after a crash")
	}
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
