package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// runFlags are the flags of run.
type runFlags struct {
	source, destination connectionFlags
	name                string
	include, exclude    []string
	interval            time.Duration
	level               string
	events              bool
	state               stateFlags
	policy              policyFlags
	access              accessFlags
	join                joinFlags
	board               boardFlags

	told func(line string) // of events, besides the screen; nil: nobody
}

const runExamples = `  # two clusters without security
  kafka-mirrors run --source a1:9092,a2:9092 --destination b1:9092 --topics 'orders.*',payments

  # the settings of Java clients, everything but the audit topics, every event
  kafka-mirrors run --source-config a.properties --destination-config b.properties \
      --topics '.*' --exclude 'audit\..*' --events

  # a mirror that can fail over and back: its state lies in the destination
  kafka-mirrors run --name a-to-b --source a:9092 --destination b:9092 --topics 'orders.*' --state kafka

  # the way back, once orders were stopped at b: only the delta is copied
  kafka-mirrors run --name b-to-a --source b:9092 --destination a:9092 --topics 'orders.*' --state kafka \
      --truncation rebuild --salvage /var/lib/kafka-mirrors/salvage

  # the same, and records that never came to b are cut off instead of copying all again
  kafka-mirrors run --name b-to-a --source b:9092 --destination a:9092 --topics 'orders.*' --state kafka \
      --truncation join --join 900-902 --join-listener INTERNAL=PLAINTEXT://mirror1:9991

  # byte for byte, as a broker of the destination that leads the mirror topics
  kafka-mirrors run --source a:9092 --destination b:9092 --topics 'orders.*' --state kafka \
      --join 900-902 --join-listener INTERNAL=PLAINTEXT://mirror1:9991 --join-listener CLIENT=PLAINTEXT://mirror1:9992`

func newRun(s streams) *cobra.Command {
	f := &runFlags{source: connectionFlags{side: "source"}, destination: connectionFlags{side: "destination"}}
	c := newRunWith(s, f)
	f.board.register(c)
	return c
}

// newRunWith is run with its flags in f.
func newRunWith(s streams, f *runFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Mirror topics until interrupted",
		Long: `Mirror topics of the source cluster to the destination cluster until Ctrl-C or
SIGTERM. Topics are created at the destination where they are missing, and those
that appear later at the source are found. Killing it and starting it again
leaves neither a hole nor a duplicate; what had failed for good is tried again.

On a terminal the status is redrawn every second, the failed partitions and the
reasons below it. Elsewhere a line is printed when something changed, at most
once a second and at least every 10 seconds. What happens (a partition fails or
recovers, a topic is refused, a partition stalls, records are skipped or cut) goes to
stderr, a line each.

--topics and --exclude take names and regular expressions: an entry made only of
letters, digits, '.', '_' and '-' is one topic's name ("audit.events"), any other is
an RE2 expression that must match the whole name ("orders.*"). Topics that begin
with "__" are never mirrored.

` + stateHelp + "\n\n" + policyHelp + "\n\n" + accessHelp + "\n\n" + joinHelp + "\n\n" + connectionHelp + `

Exit codes: 0 stopped by a signal; 1 the mirror cannot be, for example because both
addresses are one cluster or the folder of its state is in use; 2 the command line or
a configuration file is wrong; 130 a second signal did not wait for the clean stop.`,
		Example: runExamples,
		Args:    noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s) },
	}
	f.source.register(c)
	f.destination.register(c)
	registerTopics(c, &f.include, &f.exclude, "mirrored")
	c.Flags().StringVar(&f.name, "name", "mirror", "`name` of the mirror; the same one again goes on with the same mirror")
	f.state.register(c)
	f.policy.register(c)
	f.access.register(c)
	f.join.register(c, "", inRun)
	c.Flags().StringVar(&f.join.available, "join-availability", "", "`strict|open`: what there is of mirror topics when no process of ours is alive: nothing, or real\nbrokers lead them, to be read and also written to (default: strict). Not with --truncation join")
	c.Flags().DurationVar(&f.interval, "sync-interval", time.Minute, "how often topics are looked for")
	c.Flags().StringVar(&f.level, "log-level", "off", "log to stderr: off, error, warn, info or debug")
	c.Flags().BoolVar(&f.events, "events", false, "print every change of state, not only those that need an eye")
	c.Flags().SortFlags = false
	return c
}

func registerTopics(c *cobra.Command, include, exclude *[]string, done string) {
	c.Flags().StringSliceVar(include, "topics", nil, "topics to be "+done+", `name|regexp[,...]`; may be repeated")
	c.Flags().StringSliceVar(exclude, "exclude", nil, "topics to be left out, `name|regexp[,...]`; wins over --topics")
}

// opened is what a run uses, to be closed after it.
type opened struct {
	m        *mirror.Mirror
	clusters []*kafka.Cluster
	stores   *stores
	joining  *joining // nil: the destination's rights of a client will do
}

// cuts are made by what is opened last.
type cuts struct{ *broker.Truncater }

func (o *opened) Close() error {
	err := errors.Join(o.joining.Close(), o.stores.Close())
	closeAll(o.clusters...)
	return err
}

// destination is where it is mirrored to.
func (o *opened) destination() mirror.Destination {
	if o.joining != nil && o.joining.destination != nil {
		return o.joining.destination
	}
	return o.clusters[1]
}

// open makes what the flags say, or reports all that is wrong with them: nothing is
// opened before all of them are good.
func (f *runFlags) open(s *screen) (*opened, error) {
	logger, err := newLogger(s, f.level)
	errs := []error{err, f.board.check()}
	source, err := f.source.orStandIn(logger)
	errs = append(errs, err)
	destination, err := f.destination.orStandIn(logger)
	errs = append(errs, err)
	opts, err := f.options(s, logger, &destination)
	errs = append(errs, err)
	o, later := &opened{stores: &stores{}}, new(cuts)
	if destination.Truncation == kafka.Join {
		destination.Truncater = later
	}
	for _, cfg := range []kafka.Config{source, destination} {
		c, err := kafka.New(cfg)
		o.clusters, errs = append(o.clusters, c), append(errs, err)
	}
	_, _, err = f.state.places()
	errs = append(errs, err)
	_, err = f.join.config()
	errs = append(errs, err)
	if o.m, err = mirror.New(f.name, o.clusters[0], o.clusters[1], opts); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if o.stores, err = f.state.open(source, destination); err != nil {
		closeAll(o.clusters...)
		return nil, failed(err)
	}
	opts.Store, opts.Positions = o.stores.state, o.stores.peers
	switch {
	case destination.Truncation == kafka.Join:
		folder := f.policy.salvage
		if f.policy.noSalvage {
			folder = ""
		}
		if o.joining, err = f.join.openCuts(destination, keeping(folder, f.name), s.line, logger); err != nil {
			return nil, errors.Join(failed(err), o.Close())
		}
		later.Truncater = o.joining.truncater
	case f.join.on():
		if o.joining, err = f.join.open(f.name, o.clusters[1], destination, f.sharedPlace(o.stores), logger); err != nil {
			return nil, errors.Join(failed(err), o.Close())
		}
	}
	o.m, err = mirror.New(f.name, o.clusters[0], o.destination(), opts)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// sharedPlace keeps who we are as a broker in the place of --state. That it is forgotten
// with the process would not do: then there is a folder.
func (f *runFlags) sharedPlace(s *stores) keeper {
	notes, ok := s.state.(coordinator.Notes)
	if f.join.state == "" && !ok {
		f.join.state = folderOfRun
	}
	if !ok {
		return nil
	}
	return broker.NewShared(notes, f.name)
}

// options are those of the mirror but for its stores. What the flags say of the
// destination's configuration is put there.
func (f *runFlags) options(s *screen, logger *slog.Logger, destination *kafka.Config) (*mirror.Options, error) {
	var errs []error
	if len(f.include) == 0 {
		errs = append(errs, errors.New("--topics: is needed"))
	}
	if f.interval <= 0 {
		errs = append(errs, fmt.Errorf("--sync-interval: %v is not above 0", f.interval))
	}
	o := &mirror.Options{
		Topics: mirror.Topics{Include: f.include, Exclude: slices.Clone(f.exclude)},
		Events: events(func(line string) { f.tell(s, line) }, f.events), Logger: logger, SyncInterval: max(f.interval, 0),
	}
	if name := f.state.topic; topics.Literal(name) {
		if slices.Contains(f.include, name) {
			errs = append(errs, fmt.Errorf("--topics: %s is the topic of --state-topic, which is never mirrored", name))
		}
		o.Topics.Exclude = append(o.Topics.Exclude, name)
	}
	errs = append(errs, f.policy.apply(o, destination, f.join.on(), s.line), f.access.apply(o, f.state.state != inMemory))
	if f.policy.truncation == "join" && f.join.available != "" {
		errs = append(errs, errors.New("--join-availability: is of topics that we lead; with --truncation join real brokers lead them"))
	}
	return o, errors.Join(errs...)
}

// tell prints what has happened.
func (f *runFlags) tell(s *screen, line string) {
	s.line(line)
	if f.told != nil {
		f.told(line)
	}
}

func closeAll(clusters ...*kafka.Cluster) {
	for _, c := range clusters {
		if c != nil {
			c.Close()
		}
	}
}

func newLogger(s *screen, level string) (*slog.Logger, error) {
	if level == "off" {
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return slog.New(slog.DiscardHandler), fmt.Errorf("--log-level: %q is not one of off, error, warn, info, debug", level)
	}
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: l})), nil
}

func (f *runFlags) run(ctx context.Context, s streams) error {
	shown := &screen{streams: s}
	var m atomic.Pointer[mirror.Mirror]
	board := f.board.make(lookAt(&m))
	defer board.close()
	f.told = board.event
	for {
		err := f.turn(ctx, shown, func(now *mirror.Mirror) error {
			m.Store(now)
			return board.start(shown.line)
		})
		if !errors.Is(err, mirror.ErrSuperseded) || ctx.Err() != nil {
			return err
		}
		shown.line(err.Error() + ": standing by")
	}
}

// turn runs the mirror until it is told to end, or another process has taken over.
// made is told of the mirror before it runs.
func (f *runFlags) turn(ctx context.Context, shown *screen, made func(*mirror.Mirror) error) error {
	o, err := f.open(shown)
	if err != nil {
		return err
	}
	if err := o.joining.check(ctx); err != nil {
		return errors.Join(failed(err), o.Close())
	}
	if err := made(o.m); err != nil {
		return errors.Join(failed(err), o.Close())
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() {
		defer cancel()
		ran <- o.m.Run(ctx)
	}()
	var again sync.WaitGroup
	again.Go(func() { tryAgain(ctx, o.m) })
	watch(ctx, o.m.Status, shown)
	err = <-ran
	again.Wait()
	err = errors.Join(err, o.Close()) // nobody asks the stores any more
	shown.end(stamp(time.Now()) + totals(o.m.Status(), time.Since(began)))
	if err != nil {
		return failed(err)
	}
	return nil
}

// tryAgain has the partitions tried again that are on record as failed, those that
// failed for good as well: the flags, or the clusters, may be others than in the run
// before.
func tryAgain(ctx context.Context, m *mirror.Mirror) {
	if begun(ctx, m) {
		_ = m.Recover(ctx) // of all topics: only the end of ctx is an error
	}
}

// begun waits until a mirror runs; false when ctx has ended before.
func begun(ctx context.Context, m *mirror.Mirror) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s := m.Status(); !s.Running || s.Standby; s = m.Status() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// watch shows the status at once and every second until ctx ends.
func watch(ctx context.Context, status func() mirror.Status, s *screen) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s.status(status())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
