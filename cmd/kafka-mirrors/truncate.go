package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/broker"
)

// truncateFlags are the flags of truncate.
type truncateFlags struct {
	destination connectionFlags
	topic       string
	partition   int32
	offset      int64
	salvage     string
	dryRun      bool
	level       string
	join        joinFlags
}

func newTruncate(s streams) *cobra.Command {
	f := &truncateFlags{destination: connectionFlags{side: "destination"}}
	c := &cobra.Command{
		Use:   "truncate",
		Short: "Cut the tail of a partition on all its replicas",
		Long: `Cut the tail of a partition of an ordinary topic: everything from an offset on, on all
replicas, in sync or not, also below the high watermark. The batch that holds the offset
goes as a whole. --dry-run says what would go, and changes nothing.

This process becomes a broker of the cluster for some seconds (KRaft, 3.9 and 4.4 are
tested), leads the partition for a moment, has the replicas cut, and gives it back. Those
who write and read are told to try again meanwhile, for half a second about; what they are
told is written is there afterwards. The brokers reach this process at the listener
between brokers, the first --join-listener. Clients of a listener that is not given find no
leader while we lead. The user needs ClusterAction, Alter and Describe on the cluster, and
Describe and Read on the topic.

It is refused, and nothing is cut, where a replica is on a broker that is down, for topics
of Kafka's own ("__...") and of tiered storage, for a partition that is being moved, and
for one that a mirror with --join leads.

Afterwards the offsets are given again. Groups that have committed one behind the cut get
OFFSET_OUT_OF_RANGE and go where their auto.offset.reset says, unless enough was written
meanwhile. A transaction whose marker is cut, and its first records are not, is open for
ever: kafka-transactions.sh abort ends it; --dry-run names its producer.

If this process dies in between, a real broker leads again when its session has ended (9
seconds), and the same command with the same --join-state goes on. It does not touch what
was written after a cut that was made.

` + connectionHelp + `

Exit codes: 0 cut, or nothing was there to be cut; 1 it did not work; 2 the command line
or a configuration file is wrong.`,
		Example: `  # what would go
  kafka-mirrors truncate --destination b:9092 --topic orders --partition 3 --offset 120000 \
      --join 900-902 --join-listener INTERNAL=PLAINTEXT://admin1:9991 --dry-run

  # cut it, and keep what goes
  kafka-mirrors truncate --destination b:9092 --topic orders --partition 3 --offset 120000 \
      --join 900-902 --join-listener INTERNAL=PLAINTEXT://admin1:9991 --salvage /var/lib/kafka-mirrors/salvage`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s) },
	}
	f.destination.register(c)
	c.Flags().StringVar(&f.topic, "topic", "", "`name` of the topic")
	c.Flags().Int32Var(&f.partition, "partition", -1, "`number` of the partition")
	c.Flags().Int64Var(&f.offset, "offset", -1, "the first `offset` that goes")
	c.Flags().StringVar(&f.salvage, "salvage", "", "`folder` for what goes, as log segments: truncate/topic-partition/offset.log")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would go, and change nothing")
	f.join.register(c, folderOfTruncate, inTruncate)
	c.Flags().StringVar(&f.level, "log-level", "off", "log to stderr: off, error, warn, info or debug")
	c.Flags().SortFlags = false
	return c
}

// check reports all that is wrong with the flags, but for those of connections.
func (f *truncateFlags) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.topic == "" {
		bad("--topic: is needed")
	}
	if f.partition < 0 {
		bad("--partition: is needed, and not negative")
	}
	if f.offset < 0 {
		bad("--offset: is needed, and not negative")
	}
	if !f.join.on() {
		bad("--join: is needed")
	}
	if f.join.state == "" {
		bad("--join-state: names no folder")
	}
	_, err := f.join.config()
	return errors.Join(errors.Join(errs...), err)
}

func (f *truncateFlags) run(ctx context.Context, s streams) error {
	shown := &screen{streams: s}
	logger, err := newLogger(shown, f.level)
	reached, reachErr := f.destination.orStandIn(logger)
	if err := errors.Join(err, reachErr, f.check()); err != nil {
		return err
	}
	j, membership, err := f.join.claim(reached, nil)
	if err != nil {
		return failed(err)
	}
	defer j.Close()
	listeners, err := f.join.listen(membership.Listeners)
	if err != nil {
		return failed(err)
	}
	cfg := broker.TruncateConfig{
		Membership: membership, Listeners: listeners, TLS: j.tls, Overrides: j.keeper.Overrides(), DryRun: f.dryRun, Logger: logger,
		Salvage: keeping(f.salvage, salvaged),
		Progress: func(p cluster.Partition, step broker.TruncateStep) {
			logger.Info("truncate", "partition", p.String(), "step", step.String())
		},
	}
	p := cluster.Partition{Topic: f.topic, Partition: f.partition}
	done, err := broker.Truncate(ctx, cfg, []fetcher.Cut{{Partition: p, Offset: f.offset}})
	for _, t := range done {
		err = errors.Join(t.Err, err)
		f.tell(s.out, t)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// cutSalvage is broker.TruncateConfig's.
type cutSalvage = func(context.Context, cluster.Partition, cluster.Span, iter.Seq2[[]byte, error]) error

// keeping saves tails as a mirror of that name does; nil when there is no folder.
func keeping(folder, name string) cutSalvage {
	if folder == "" {
		return nil
	}
	save := mirror.SalvageTo(folder)
	return func(ctx context.Context, p cluster.Partition, span cluster.Span, batches iter.Seq2[[]byte, error]) error {
		return save(ctx, mirror.Tail{Mirror: name, Partition: p, Span: span, Batches: batches})
	}
}

// salvaged is the folder of --salvage in which other commands have the mirror's name.
const salvaged = "truncate"

// tell prints what goes, or has gone, of a partition.
func (f *truncateFlags) tell(out io.Writer, t broker.Truncation) {
	line := func(format string, args ...any) {
		fmt.Fprintf(out, "%v: %s\n", t.Partition, fmt.Sprintf(format, args...))
	}
	if len(t.Replicas) == 0 {
		return // it was not found, or not looked at
	}
	line("log [%d,%d), broker %d leads, replicas %s, in sync %s", t.LogStart, t.LogEnd, t.Leader, joined(t.Replicas), joined(t.InSync))
	switch {
	case t.Err != nil && t.Took == 0:
		return
	case t.Earlier:
		line("was cut at offset %d by an earlier call; what stands there by now was written later and stays", t.At)
		return
	case t.Nothing():
		line("nothing to cut: the log ends at %d", t.LogEnd)
		return
	}
	if t.At < t.Offset {
		line("offset %d lies in the batch that begins at %d, which goes as a whole", t.Offset, t.At)
	}
	span := cluster.Span{From: t.At, To: t.LogEnd}
	went := "gone"
	if f.dryRun {
		went = "to go"
	}
	if t.Err == nil {
		line("%s: offsets %v, %d in %d batches, %d bytes", went, span, span.Len(), t.Batches, t.Bytes)
	}
	for _, id := range t.Opened {
		line("a transaction of producer %d loses its marker and stays open: see kafka-transactions.sh abort", id)
	}
	if t.Took > 0 {
		line("in our hands for %v, without a real leader for %v", t.Took.Round(time.Millisecond), t.Leaderless.Round(time.Millisecond))
	}
	if f.salvage != "" && !f.dryRun {
		line("saved in %s", filepath.Join(f.salvage, salvaged, t.Partition.String()))
	}
}

func joined(ids []int32) string {
	texts := make([]string, len(ids))
	for i, id := range slices.Sorted(slices.Values(ids)) {
		texts[i] = fmt.Sprint(id)
	}
	return strings.Join(texts, ",")
}
