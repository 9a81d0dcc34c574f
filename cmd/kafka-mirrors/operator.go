package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/kafka"
)

// The codes of commands that speak to a daemon through the state topic, beside the others.
const (
	exitPending     = 4
	exitUnknown     = 5
	exitExists      = 6
	exitState       = 7
	exitUnreachable = 8
)

// codesHelp is the part of the help about them.
const codesHelp = `Exit codes: 0 done; 1 it did not work; 2 the command line or a file is wrong; 4 it was
not done in time: what is wanted is stored and goes on, but for promote; 5 there is no such
mirror; 6 another mirror of that name exists; 7 a topic is not in a state for it; 8 a cluster
cannot be reached.`

// codeOf is the code that the program exits with for an error: of several the first one's, unless that is only
// not done yet.
func codeOf(err error) int {
	code := exitFailed
	for i, e := range flat(err) {
		if one := codeOfOne(e); i == 0 || code == exitPending {
			code = one
		}
	}
	return code
}

func codeOfOne(err error) int {
	var o *outcome
	if errors.As(err, &o) {
		return o.code
	}
	for _, known := range []struct {
		code int
		of   []error
	}{
		{exitUnknown, []error{mirror.ErrUnknownMirror}},
		{exitExists, []error{mirror.ErrMirrorExists}},
		{exitState, []error{mirror.ErrNotStopped, mirror.ErrStopped, mirror.ErrExcluded, mirror.ErrActive, mirror.ErrInternalTopic}},
		{exitUnreachable, []error{cluster.ErrUnreachable, cluster.ErrTimeout}},
		{exitPending, []error{context.DeadlineExceeded, errNoDaemon}},
	} {
		for _, kind := range known.of {
			if errors.Is(err, kind) {
				return known.code
			}
		}
	}
	return exitFailed
}

// coded is an error with its code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return &outcome{codeOf(err), err}
}

// operatorFlags are those of each command that speaks to the destination alone.
type operatorFlags struct {
	destination  connectionFlags
	topic, level string
	timeout      time.Duration
}

func (f *operatorFlags) register(c *cobra.Command, timeout time.Duration) {
	f.destination.side, f.destination.kafkas = "destination", true
	f.destination.register(c)
	f.registerState(c)
	c.Flags().DurationVar(&f.timeout, "timeout", timeout, "how long it may take")
	c.Flags().SortFlags = false
}

func (f *operatorFlags) registerState(c *cobra.Command) {
	c.Flags().StringVar(&f.topic, "state-topic", "", "`name` of the topic that holds the state, beginning with __ (default "+statekafka.DefaultTopic+")")
	c.Flags().StringVar(&f.level, "log-level", "off", "log to stderr: off, error, warn, info or debug")
}

// check reports all that is wrong with the flags.
func (f *operatorFlags) check(s streams) (kafka.Config, error) {
	logger, err := newLogger(&screen{streams: s}, f.level)
	reached, reachErr := f.destination.orStandIn(logger)
	errs := []error{err, reachErr}
	if f.topic != "" && !strings.HasPrefix(f.topic, "__") {
		errs = append(errs, fmt.Errorf("--state-topic: %q does not begin with __, so that a mirror could copy it", f.topic))
	}
	if f.topic != "" {
		legal := statekafka.Config{Bootstrap: []string{"any:1"}, Topic: f.topic}
		errs = append(errs, placed("--state-topic", legal.Validate()))
	}
	if f.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout: %v is not above 0", f.timeout))
	}
	return reached, errors.Join(errs...)
}

// desk is what a command works with: the state, and a Controller that runs nothing.
type desk struct {
	store   *statekafka.Store
	c       *mirror.Controller
	reached kafka.Config
	streams
}

// open opens the state; wrong is what else is wrong with the command line.
func (f *operatorFlags) open(s streams, wrong ...error) (*desk, error) {
	reached, err := f.check(s)
	if err := errors.Join(append([]error{err}, wrong...)...); err != nil {
		return nil, err
	}
	kept := &stores{}
	store, err := openTopic(kept, f.topic, reached)
	if err != nil {
		return nil, coded(err)
	}
	c, err := newDesk(store, reached.Logger)
	if err != nil {
		return nil, coded(errors.Join(err, store.Close()))
	}
	return &desk{store: store, c: c, reached: reached, streams: s}, nil
}

// newDesk is a Controller that stores what is wanted. It opens no cluster: that is the
// daemon's.
func newDesk(store mirror.Store, logger *slog.Logger) (*mirror.Controller, error) {
	nothing := func(context.Context, coordinator.Definition) (mirror.Source, mirror.Destination, error) {
		return nil, nil, nil
	}
	return mirror.NewController(store, nothing, &mirror.ControllerOptions{Logger: logger})
}

// bounded gives a command the time it may take, and everything it does an exit code.
func (f *operatorFlags) bounded(ctx context.Context, s streams, do func(context.Context, *desk) error, wrong ...error) error {
	d, err := f.open(s, wrong...)
	if err != nil {
		return err
	}
	defer d.store.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return spoken(do(ctx, d))
}

// spoken is an error with its code, and without the operation, which is the command's name.
func spoken(err error) error {
	if err == nil {
		return nil
	}
	var all []error
	for _, e := range flat(err) {
		if o, ok := e.(*outcome); ok {
			e = o.err
		}
		for _, e := range unnested(flat(e)) {
			if m, ok := e.(*mirror.Error); ok {
				e = errors.New(strings.TrimPrefix(m.Error(), m.Op+": "))
			}
			all = append(all, e)
		}
	}
	return &outcome{codeOf(err), errors.Join(all...)}
}

// unnested takes the errors of topics out of those of mirrors.
func unnested(errs []error) (all []error) {
	for _, e := range errs {
		m, ok := e.(*mirror.Error)
		if !ok {
			all = append(all, e)
			continue
		}
		inner := flat(m.Err)
		if _, topics := inner[0].(*mirror.Error); topics {
			all = append(all, unnested(inner)...)
			continue
		}
		all = append(all, e)
	}
	return all
}

// needMirror says that a name was not given.
func needMirror(name string) error {
	if name == "" {
		return errors.New("--mirror: is needed")
	}
	return nil
}
