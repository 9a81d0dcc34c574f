package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/kafka"
)

// daemonFlags are the flags of daemon.
type daemonFlags struct {
	operator  operatorFlags
	secrets   []string
	salvage   string
	noSalvage bool
	events    bool
	board     boardFlags
}

func newDaemon(s streams) *cobra.Command {
	f := &daemonFlags{}
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run every mirror that is defined in a cluster's state topic",
		Long: `Run every mirror into one destination cluster that its state topic defines, until Ctrl-C
or SIGTERM: what is in flight is finished then. Mirrors are made with create, begun with
start, and changed, stopped and deleted with the other commands, all of them while this
runs and from anywhere: they speak to it through the state topic. What they have stored
holds over restarts. A mirror that cannot be opened, or fails, is tried again and does not
keep the others up.

Killing it and starting it again, here or elsewhere, leaves neither a hole nor a duplicate.
A second one stands by, without a page, and begins some seconds after the first has
ended, or was killed. For one mirror without commands, and for a destination that is
joined, there is run.

Where a mirror goes back to a cluster that mirrors came from, only what came later is
copied: the state topic of its source is asked where the mirrors into that have stopped.
The source's user needs to describe and read it.

Once every 10 seconds, and when something changes, a line for each mirror is printed; what
happens goes to stderr, a line each.

` + boardHelp + "\n\n" + connectionHelp + `

Exit codes: 0 stopped by a signal; 1 it did not work; 2 the command line or a configuration
file is wrong; 130 a second signal did not wait for the clean stop.`,
		Example: `  kafka-mirrors daemon --bootstrap-server b1:9092,b2:9092

  # secrets of definitions come from files below a folder, and from nowhere else
  kafka-mirrors daemon --bootstrap-server b1:9092 --command-config b.properties --secrets /etc/kafka-mirrors`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), s) },
	}
	f.operator.destination.side, f.operator.destination.kafkas, f.operator.timeout = "destination", true, time.Second
	f.operator.destination.register(c)
	f.operator.registerState(c)
	c.Flags().StringSliceVar(&f.secrets, "secrets", nil, "`folders` whose files references of definitions may name (default: any)")
	c.Flags().StringVar(&f.salvage, "salvage", salvageFolder, "`folder` for records that are cut; a cut waits until they are there")
	c.Flags().BoolVar(&f.noSalvage, "no-salvage", false, "do not keep the records that are cut")
	c.Flags().BoolVar(&f.events, "events", false, "print every change of state, not only those that need an eye")
	f.board.register(c)
	c.Flags().SortFlags = false
	return c
}

func (f *daemonFlags) run(ctx context.Context, s streams) error {
	shown := &screen{streams: s}
	salvage, err := (&policyFlags{salvage: f.salvage, noSalvage: f.noSalvage}).salvager(shown.line)
	d, err := f.operator.open(s, err, f.board.check())
	if err != nil {
		return err
	}
	defer d.store.Close()
	logger := d.reached.Logger
	o := ends{reached: d.reached, topic: f.operator.topic, secrets: resolver{f.secrets}}
	var c *mirror.Controller
	board := f.board.make(func(ctx context.Context) ([]mirror.Description, error) { return lookAtAll(ctx, c) })
	defer board.close()
	tell := func(line string) {
		shown.line(line)
		board.event(line)
	}
	c, err = mirror.NewController(d.store, o.open, &mirror.ControllerOptions{
		Mirrors: mirror.Options{Salvage: salvage, Events: namedEvents(tell, f.events), Logger: logger},
		Logger:  logger, LookInterval: time.Second, Peers: o.peers,
	})
	if err != nil {
		return failed(err)
	}
	if !standBy(ctx, d.store, shown) { // the page is that of who runs the mirrors
		return nil
	}
	if err := board.start(shown.line); err != nil {
		return failed(err)
	}
	clerk := &clerk{c: c, notes: d.store, by: whoWe(), logger: logger}
	// A second context: what commands ask is answered as long as mirrors run.
	answering, quiet := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	beside.Go(func() { clerk.run(answering) })
	beside.Go(func() { (&watcher{c: c, shown: shown, said: map[string]said{}}).run(answering) })
	err = c.Run(ctx)
	quiet()
	beside.Wait()
	shown.line("stopped: no mirror runs here any more")
	if err != nil {
		return failed(err)
	}
	return nil
}

// standBy waits until no other daemon answers; false when ctx has ended before. A state topic that cannot be
// read is waited for as well.
func standBy(ctx context.Context, notes coordinator.Notes, shown *screen) bool {
	said, patience := "", post.other
	for ctx.Err() == nil {
		a, err := within(ctx, notes, question{Ask: askMirrors}, patience)
		if errors.Is(err, errNoDaemon) {
			return true
		}
		line := ""
		switch {
		case a != nil:
			line = "standing by: the mirrors are run by " + a.By
			patience = post.first // it may only be slow
		case ctx.Err() == nil:
			line = "waiting: " + err.Error()
		}
		if line != said && line != "" {
			shown.say(line)
			said = line
		}
		select {
		case <-time.After(post.other):
		case <-ctx.Done():
		}
	}
	return false
}

// whoWe is how this process signs.
func whoWe() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d, %s", host, os.Getpid(), rand.Text()[:6])
}

// ends opens the ends of mirrors.
type ends struct {
	reached kafka.Config // the destination
	topic   string
	secrets resolver
}

// sourceOf is the way to a mirror's source.
func (o ends) sourceOf(d coordinator.Definition) (kafka.Config, error) {
	cfg, err := o.secrets.sourceConfig(d)
	cfg.Logger = o.reached.Logger.With("cluster", "source", "mirror", d.Name)
	return cfg, placed("source", err)
}

func (o ends) open(_ context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
	from, err := o.sourceOf(d)
	to := o.reached
	if err := errors.Join(err, setDestination(&to, d.Destination)); err != nil {
		return nil, nil, err
	}
	source, err := kafka.New(from)
	if err != nil {
		return nil, nil, err
	}
	destination, err := kafka.New(to)
	if err != nil {
		return nil, nil, errors.Join(err, source.Close())
	}
	return source, destination, nil
}

// peers is the state of mirrors into the source.
func (o ends) peers(_ context.Context, d coordinator.Definition) (coordinator.Positions, error) {
	from, err := o.sourceOf(d)
	if err != nil {
		return nil, err
	}
	return openTopic(&stores{}, o.topic, from)
}
