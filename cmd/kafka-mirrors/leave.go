package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// leaveFlags are the flags of leave.
type leaveFlags struct {
	source, destination connectionFlags
	name                string
	ids                 []int32
	force, dryRun       bool
	timeout             time.Duration
	level               string
	state               stateFlags
	join                joinFlags
}

func newLeave(s streams) *cobra.Command {
	f := &leaveFlags{source: connectionFlags{side: "source"}, destination: connectionFlags{side: "destination"}}
	c := &cobra.Command{
		Use:   "leave",
		Short: "Hand back what a mirror that joined leads, and take it out of the cluster",
		Long: `Make all topics ordinary ones that a mirror with run --join leads, and take its brokers
out of the destination cluster: for good, also after a crash, with nobody running. Every
topic is stopped as in a failover: the real replicas get all there is, the position is
stored, a real broker leads, the topic is writable and has its own settings again, and
transactions that the source left open are aborted. --dry-run says what would be done, and
changes nothing.

End the run before, or this is refused; it waits for the session of one that was killed.
With --force it goes ahead: a process that shares --state with this one finds that it is
displaced, and ends.

Give what the run was given: --name, --state or --join-state, and the listeners, at which
the brokers reach this process meanwhile. The host need not be the same. Without a source
everything works but the last copy of committed offsets. If this is interrupted, or killed,
the same command goes on.

Where the state is lost, leave out --state and --join-state, and name the brokers (--id). The
metadata log tells then what they lead. What settings of their own the topics had is lost,
so the two that a mirror sets go back to the cluster's default; no position is stored; and
transactions may stay open if this is killed in between.

` + connectionHelp + `

Exit codes: 0 nothing of the mirror is left in the cluster; 1 it did not work; 2 the command
line or a configuration file is wrong.`,
		Example: `  # what would be done
  kafka-mirrors leave --name a-to-b --destination b:9092 --state kafka --join 900-902 \
      --join-listener INTERNAL=PLAINTEXT://mirror1:9991 --dry-run

  # the state is lost
  kafka-mirrors leave --destination b:9092 --join 900-902 --id 900 \
      --join-listener INTERNAL=PLAINTEXT://mirror1:9991`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s) },
	}
	f.destination.register(c)
	f.source.register(c)
	c.Flags().StringVar(&f.name, "name", "mirror", "`name` of the mirror")
	c.Flags().Int32SliceVar(&f.ids, "id", nil, "broker `ids` to be out of the cluster (default: those that the state has)")
	c.Flags().BoolVar(&f.force, "force", false, "go ahead although a process is one of the brokers")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and change nothing")
	c.Flags().StringVar(&f.state.state, "state", inMemory, "where the mirror's state stands, as in run, `memory|file:DIR|kafka`")
	c.Flags().StringVar(&f.state.topic, "state-topic", "", "`name` of the topic of --state kafka, as in run")
	f.join.register(c, "", inLeave)
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long it may take; the same command goes on then")
	c.Flags().StringVar(&f.level, "log-level", "off", "log to stderr: off, error, warn, info or debug")
	c.Flags().SortFlags = false
	f.state.peer = nowhere
	return c
}

const inLeave = "`folder` that run had, where its state was memory (default: " + folderOfRun + " if there is one)"

// check reports all that is wrong with the flags, but for those of connections.
func (f *leaveFlags) check() error {
	var errs []error
	if !f.join.on() {
		errs = append(errs, errors.New("--join: is needed"))
	}
	if f.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout: %v is not above 0", f.timeout))
	}
	_, err := f.join.config()
	_, _, stateErr := f.state.places()
	return errors.Join(errors.Join(errs...), err, stateErr, f.folder())
}

// folder finds that of the run: a new one would only hide that nothing is known.
func (f *leaveFlags) folder() error {
	given := f.join.state != ""
	if !given && f.state.state == inMemory {
		f.join.state = folderOfRun
	}
	if f.join.state == "" {
		return nil
	}
	_, err := os.Stat(f.join.state)
	if err == nil {
		return nil
	}
	if given {
		return fmt.Errorf("--join-state: %w; where it is lost leave it out, and name the brokers with --id", err)
	}
	f.join.state = ""
	return nil
}

// lost is the keeper of what is kept nowhere any more.
type lost struct {
	identities broker.MemoryIdentities
	overrides  broker.MemoryOverrides
}

func (l *lost) Identities() broker.Identities { return &l.identities }
func (l *lost) Overrides() broker.Overrides   { return &l.overrides }

func (f *leaveFlags) run(ctx context.Context, s streams) error {
	shown := &screen{streams: s}
	logger, err := newLogger(shown, f.level)
	reached, reachErr := f.destination.orStandIn(logger)
	var from mirror.Source = absent{}
	var sourceErr error
	if len(f.source.bootstrap) > 0 || f.source.file != "" {
		var source *kafka.Cluster
		if source, sourceErr = f.source.open(logger); sourceErr == nil {
			defer source.Close()
			from = source
		}
	}
	if err := errors.Join(err, reachErr, sourceErr, f.check()); err != nil {
		return err
	}
	kept, err := f.state.open(reached, reached)
	if err != nil {
		return failed(err)
	}
	defer kept.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	left, err := f.leave(ctx, from, reached, kept, logger, shown)
	if err == nil || len(left.Traces) > 0 {
		f.tell(s.out, left, err)
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

func (f *leaveFlags) leave(ctx context.Context, from mirror.Source, reached kafka.Config, kept *stores, logger *slog.Logger, shown *screen) (broker.Left, error) {
	var keeper keeper = new(lost)
	if notes, ok := kept.state.(coordinator.Notes); ok {
		keeper = broker.NewShared(notes, f.name)
	}
	j, membership, err := f.join.claim(reached, keeper)
	if err != nil {
		return broker.Left{}, err
	}
	defer j.Close()
	if !f.dryRun {
		if j.listeners, err = f.join.listen(membership.Listeners); err != nil {
			return broker.Left{}, err
		}
	}
	admin, err := kafka.New(reached)
	if err != nil {
		return broker.Left{}, err
	}
	defer admin.Close()
	cfg := broker.LeaveConfig{
		Membership: membership, Overrides: j.keeper.Overrides(), Listeners: j.listeners, TLS: j.tls, Admin: admin,
		Brokers: f.ids, Force: f.force, DryRun: f.dryRun, Logger: logger,
	}
	if kept.state != nil {
		cfg.Stop = func(ctx context.Context, d broker.Running, topics []string) error {
			return f.stop(ctx, from, d, topics, &mirror.Options{Store: kept.state, Logger: logger, Events: events(shown.line, false)})
		}
	}
	return broker.Leave(ctx, cfg)
}

// stop ends the mirror of topics as a failover does, so that positions are stored.
func (f *leaveFlags) stop(ctx context.Context, from mirror.Source, d broker.Running, topics []string, opts *mirror.Options) error {
	opts.Topics = mirror.Topics{Include: topics}
	m, err := mirror.New(f.name, from, d, opts)
	if err != nil {
		return err
	}
	if err := m.Stop(ctx, topics...); err != nil { // on record, so that nothing is copied first
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() {
		defer end()
		ran <- m.Run(running)
	}()
	if begun(running, m) {
		err = m.Stop(running, topics...)
	}
	end()
	return errors.Join(err, <-ran)
}

// tell prints what was found, and done.
func (f *leaveFlags) tell(out io.Writer, left broker.Left, err error) {
	for _, t := range left.Traces {
		fmt.Fprintln(out, traceLine(t))
	}
	list := func(what string, topics []string) {
		for _, topic := range topics {
			fmt.Fprintf(out, "%s: %s\n", what, printable(topic))
		}
	}
	switch {
	case len(left.Brokers) == 0 && err == nil:
		fmt.Fprintln(out, "nothing of the mirror is left in the cluster")
		return
	case f.dryRun:
		list("to be made an ordinary topic", left.Topics)
		list("to have its replica on us removed", left.Others)
		list("gets the cluster's default settings, as its own are not known", left.Guessed)
	case err == nil:
		list("is an ordinary topic", left.Topics)
	}
	for _, id := range left.Out {
		fmt.Fprintf(out, "broker %d is out of the cluster\n", id)
	}
}

func traceLine(t broker.Trace) string {
	registered := "is not registered"
	switch {
	case t.Alive:
		registered = "is registered, and its session lasts"
	case t.Registered:
		registered = "is registered, without a session"
	}
	who := ""
	if t.Kept {
		who = " (" + printable(t.Name) + ")"
	}
	return fmt.Sprintf("broker %d%s %s; %d partitions name it, it leads %d, nobody leads %d", t.Broker, who, registered, t.Replicas, t.Leads, t.Leaderless)
}
