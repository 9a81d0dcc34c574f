package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/kafka"
)

// policyHelp is the part of the help about records that have to go.
const policyHelp = `Cuts. Records of the destination sometimes have to go before a copy can be exact: in
a failback those that the mirror the other way never got, and what these flags name.
Clients cannot cut a log, so nothing is cut unless --truncation says how. rebuild: the
topic is deleted, created again as it was, and copied anew. join: this process becomes
a broker of the destination for a moment, as kafka-mirrors truncate does, and has the
replicas cut; the topic stays, and only what was cut is copied. It needs --join and
--join-listener, which are for nothing else then. With --join alone tails are cut without
more ado. Until then the partition is FAILED, with the offsets named. What goes is written to files before, segments as
Kafka's own dump tool reads them: DIR/mirror/topic-partition/offset.log (--salvage).
An option that a message names is a flag here: UncleanRecovery is --unclean-recovery.`

// salvageFolder is where tails go unless --salvage says otherwise.
const salvageFolder = "kafka-mirrors-salvage"

// policyFlags say what may be done to the destination's logs, and where they begin.
type policyFlags struct {
	start, gap, truncation string
	gapFill                string
	maxStartFill           int64
	unclean                []string
	discard, scratch       bool
	salvage                string
	noSalvage              bool
}

func (f *policyFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.start, "start", "earliest", "where the copy of an empty topic begins, `earliest|latest|time` as in 2026-05-01T12:00:00Z;\ntopics found later begin at the source's log start")
	c.Flags().StringVar(&f.gap, "retention-gap", "continue", "when the source has deleted what was not copied yet: `continue|fail`; with --gap-fill\nfail it fails in any case")
	c.Flags().StringVar(&f.gapFill, "gap-fill", kafka.GapAuto.String(), "what takes the place of offsets without records (compaction, transactions): `auto|markers|phantoms|fail`;\nauto is markers, which need ALTER on the cluster; clients differ in what they see of each")
	c.Flags().Int64Var(&f.maxStartFill, "max-start-fill", 0, "how many `offsets` are filled at most so that a log starts where the source's does (default 100,000,000)")
	c.Flags().StringVar(&f.truncation, "truncation", "refuse", "when records at the destination have to go: `refuse|rebuild|join`, delete the topic and copy it\nagain, or become a broker for a moment and cut them off")
	c.Flags().StringVar(&f.salvage, "salvage", salvageFolder, "`folder` for the records that are cut; a cut waits until they are there")
	c.Flags().BoolVar(&f.noSalvage, "no-salvage", false, "do not keep the records that are cut")
	c.Flags().StringSliceVar(&f.unclean, "unclean-recovery", nil, "topics, as in --topics, that are cut where the source has lost what was copied already\n(`name|regexp[,...]`)")
	c.Flags().BoolVar(&f.discard, "discard-local-writes", false, "a topic that was stopped here and is mirrored again: cut what was written since then")
	c.Flags().BoolVar(&f.scratch, "scratch", false, "a topic of which nothing tells how much is the source's: cut all of it")
}

// apply puts into options and the destination's configuration what the flags say, and
// reports all that is wrong with them.
func (f *policyFlags) apply(o *mirror.Options, destination *kafka.Config, joins bool, print func(string)) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var err error
	if o.Start, err = parseStart(f.start); err != nil {
		errs = append(errs, err)
	}
	switch f.gap {
	case "continue":
		o.Fetch.RetentionGap = fetcher.RetentionContinue
	case "fail":
		o.Fetch.RetentionGap = fetcher.RetentionFail
	default:
		bad("--retention-gap: %q is not one of continue, fail", f.gap)
	}
	if destination.GapFill, err = kafka.ParseGapFill(f.gapFill); err != nil {
		errs = append(errs, placed("--gap-fill", err))
	}
	if f.maxStartFill < 0 {
		bad("--max-start-fill: %d is negative", f.maxStartFill)
	} else {
		destination.MaxStartFill = f.maxStartFill
	}
	switch f.truncation {
	case "refuse":
		if joins {
			break // it cuts by itself
		}
		for _, needs := range []struct {
			flag string
			set  bool
		}{
			{"unclean-recovery", len(f.unclean) > 0}, {"discard-local-writes", f.discard}, {"scratch", f.scratch},
		} {
			if needs.set {
				bad("--%s: needs --truncation rebuild or join", needs.flag)
			}
		}
	case "rebuild":
		if destination.Truncation = kafka.Rebuild; joins {
			bad("--truncation: rebuild and --join exclude each other")
		}
	case "join":
		if destination.Truncation = kafka.Join; !joins {
			bad("--truncation: join needs --join and --join-listener")
		}
	default:
		bad("--truncation: %q is not one of refuse, rebuild, join", f.truncation)
	}
	if _, err := topics.NewFilter(f.unclean, nil); err != nil {
		errs = append(errs, placed("--unclean-recovery", err))
	} else {
		o.UncleanRecovery = f.unclean
	}
	o.DiscardLocalWrites, o.Scratch = f.discard, f.scratch
	if o.Salvage, err = f.salvager(print); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func parseStart(text string) (mirror.Start, error) {
	switch text {
	case "earliest":
		return mirror.Start{}, nil
	case "latest":
		return mirror.Start{Latest: true}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Before(time.UnixMilli(0)) {
		return mirror.Start{}, fmt.Errorf("--start: %q is not one of earliest, latest, a time since 1970 as in 2026-05-01T12:00:00Z", text)
	}
	return mirror.Start{Time: at}, nil
}

// salvager is what is done with tails before they are cut; nil when nothing is.
func (f *policyFlags) salvager(print func(string)) (func(context.Context, mirror.Tail) error, error) {
	switch {
	case f.noSalvage && f.salvage != salvageFolder:
		return nil, errors.New("--no-salvage: and --salvage exclude each other")
	case f.noSalvage:
		return nil, nil
	case f.salvage == "":
		return nil, errors.New("--salvage: names no folder; --no-salvage keeps nothing")
	}
	if is, err := os.Stat(f.salvage); err == nil && !is.IsDir() {
		return nil, fmt.Errorf("--salvage: %s is not a folder", f.salvage)
	}
	dir, err := filepath.Abs(f.salvage)
	if err != nil {
		return nil, fmt.Errorf("--salvage: %w", err)
	}
	save := mirror.SalvageTo(dir)
	return func(ctx context.Context, t mirror.Tail) error {
		if err := save(ctx, t); err != nil {
			return err
		}
		print(fmt.Sprintf("%v salvaged: offsets %v are in %s", t.Partition, t.Span, filepath.Join(dir, t.Mirror, t.Partition.String())))
		return nil
	}, nil
}
