package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/preflight"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

const preflightExamples = `  # before the first run: the same flags, another word
  kafka-mirrors preflight --source a:9092 --destination b:9092 --topics 'orders.*' --state kafka

  # for a program: what blocks
  kafka-mirrors preflight --source a:9092 --destination b:9092 --topics 'orders.*' --json |
      jq -r '.findings[] | select(.severity == "blocks") | .what'

  # a mirror that was made with create, before it is started
  kafka-mirrors preflight --bootstrap-server b:9092 --mirror dr --topics 'orders.*'`

// newPreflight has the flags of run: what is checked is what would run.
func newPreflight(s streams) *cobra.Command {
	f := &runFlags{source: connectionFlags{side: "source"}, destination: connectionFlags{side: "destination"}}
	defined := &definedFlags{operator: operatorFlags{destination: connectionFlags{side: "destination", kafkas: true}, timeout: time.Minute}}
	var asJSON bool
	c := newRunWith(s, f)
	c.Use, c.Short, c.Example = "preflight", "Say what would go wrong if a mirror were run", preflightExamples
	c.Long = `Look at both clusters, before anything runs, for what would go wrong later, and print one
report: brokers that cannot be reached at the addresses they advertise, versions, missing
permissions one by one, topics that are in the way, limits of size, time and retention that
differ, replicas, what --join needs. It takes the flags of run, or with --mirror and
--bootstrap-server looks at a mirror that is defined in the state topic, as the daemon would
run it, with --topics those that are to be started besides. It only asks: nothing is changed
on either cluster. A cluster that does not answer is a finding, and the rest goes on.

A finding BLOCKS (what it concerns is not mirrored, or stops for certain), LOSES (something
is not brought over, or is gone earlier than at the source) or WARNS (it may stop later, or
could not be checked). docs/preflight.md lists them all, and describes --json.

Topics that a user may not describe are not seen by him: they are missing from the count.

Exit codes: 0 nothing blocks; 1 something does, or the check itself could not be made; 2
the command line or a configuration file is wrong; with --mirror also 5, there is no such
mirror, and 8, the state topic cannot be reached.`
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	defined.register(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		look := f.preflight
		if defined.mirror != "" {
			defined.operator.topic, defined.operator.level = f.state.topic, f.level
			defined.besides = mirror.Topics{Include: f.include, Exclude: f.exclude}
			look = defined.preflight
		} else if c.Flags().Changed("bootstrap-server") || c.Flags().Changed("command-config") || c.Flags().Changed("secrets") {
			return errors.New("--bootstrap-server, --command-config and --secrets: go with --mirror, which is needed")
		}
		report, err := look(c.Context(), s)
		if err != nil {
			return err
		}
		return tellReport(s, report, asJSON)
	}
	return c
}

// definedFlags are those for a mirror that is defined.
type definedFlags struct {
	operator operatorFlags
	mirror   string
	secrets  []string
	besides  mirror.Topics
}

func (f *definedFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.mirror, "mirror", "", "`name` of a mirror that is defined in the state topic, instead of the flags of run")
	f.operator.destination.register(c)
	c.Flags().StringSliceVar(&f.secrets, "secrets", nil, "`folders` whose files references of definitions may name (default: any)")
	for _, flag := range []string{"source", "source-config", "destination", "destination-config", "name", "state", "peer-state", "join"} {
		c.MarkFlagsMutuallyExclusive("mirror", flag)
	}
}

// preflight looks at a mirror as the daemon would run it.
func (f *definedFlags) preflight(ctx context.Context, s streams) (*preflight.Report, error) {
	_, wrong := topics.NewFilter(f.besides.Include, f.besides.Exclude)
	d, err := f.operator.open(s, wrong)
	if err != nil {
		return nil, err
	}
	defer d.store.Close()
	o := ends{reached: d.reached, topic: f.operator.topic, secrets: resolver{f.secrets}}
	c, err := mirror.NewController(d.store, o.open, &mirror.ControllerOptions{Mirrors: mirror.Options{Logger: d.reached.Logger}, Logger: d.reached.Logger, Peers: o.peers})
	if err != nil {
		return nil, coded(err)
	}
	report, err := c.Preflight(ctx, f.mirror, f.besides)
	return report, spoken(err)
}

func tellReport(s streams, r *preflight.Report, asJSON bool) error {
	var err error
	if asJSON {
		e := json.NewEncoder(s.out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		_, err = r.WriteTo(s.out)
	}
	if err != nil {
		return failed(err)
	}
	if !r.Ready {
		return failed(fmt.Errorf("%d of the findings block", r.Counts[preflight.Blocks]))
	}
	return nil
}

// preflight opens what a run would open, but for what a run takes: ports, and who we are.
func (f *runFlags) preflight(ctx context.Context, s streams) (*preflight.Report, error) {
	shown := &screen{streams: s}
	logger, err := newLogger(shown, f.level)
	source, sourceErr := f.source.orStandIn(logger)
	destination, destinationErr := f.destination.orStandIn(logger)
	opts, optsErr := f.options(shown, logger, &destination)
	errs := []error{err, sourceErr, destinationErr, optsErr}
	cfg, err := f.join.config()
	errs = append(errs, err)
	_, _, err = f.state.places()
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	if destination.Truncation == kafka.Join {
		destination.Truncater = new(cuts) // nothing is cut here
	}
	a, err := kafka.New(source)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := kafka.New(destination)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	stores, err := f.state.open(source, destination)
	if err != nil {
		return nil, failed(err)
	}
	defer stores.Close()
	opts.Store, opts.Positions = stores.state, stores.peers
	to, err := f.candidate(cfg, b, destination, stores)
	if err != nil {
		return nil, err
	}
	report, err := mirror.Preflight(ctx, f.name, a, to, opts)
	if err != nil {
		return nil, failed(err)
	}
	return report, nil
}

// candidate is the destination as it is before it is joined, or the cluster itself.
func (f *runFlags) candidate(cfg broker.Config, b *kafka.Cluster, reached kafka.Config, s *stores) (mirror.Destination, error) {
	if !f.join.on() {
		return b, nil
	}
	cfg.Bootstrap, cfg.TLS, cfg.SASL, cfg.Dial, cfg.Logger = reached.Bootstrap, reached.TLS, reached.SASL, reached.Dial, reached.Logger
	if notes, ok := s.state.(coordinator.Notes); ok && f.join.state == "" {
		cfg.Identities = broker.NewShared(notes, f.name).Identities()
	}
	secure, err := f.join.secure(cfg.Listeners)
	if err != nil {
		return nil, err
	}
	joins, err := broker.NewCandidate(cfg, secure, b)
	if err != nil || reached.Truncation != kafka.Join {
		return joins, err
	}
	return cutting{b, joins}, nil
}

// cutting is a destination of clients which is joined when something has to be cut.
type cutting struct {
	*kafka.Cluster
	joins *broker.Candidate
}

// Joinable says why nothing could be cut.
func (c cutting) Joinable(ctx context.Context) []error { return c.joins.Joinable(ctx) }
