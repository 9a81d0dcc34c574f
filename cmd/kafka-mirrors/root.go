package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
)

// The codes the program exits with.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDifferent   = 3
	exitInterrupted = 130
)

// outcome is an error that says which code the program exits with. Whatever else
// comes out of the command tree is a mistake in the command line.
type outcome struct {
	code int
	err  error
}

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }

func failed(err error) error { return &outcome{exitFailed, err} }

// execute runs one command line until it is done or ctx ends, and gives the code
// to exit with.
func execute(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // of nil cobra would make the process's own
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var o *outcome
	if !errors.As(err, &o) {
		o = &outcome{exitUsage, err}
	}
	for _, line := range flat(o.err) {
		fmt.Fprintf(s.err, "%s: %s\n", command.CommandPath(), printable(line.Error()))
	}
	if o.code == exitUsage {
		fmt.Fprintf(s.err, "See '%s --help'.\n", command.CommandPath())
	}
	return o.code
}

// The groups of commands in the help.
const (
	groupMirrors = "mirrors"
	groupSingle  = "single"
)

// newRoot builds the command tree.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "kafka-mirrors",
		Short: "Mirror Kafka clusters with identical offsets",
		Long: `kafka-mirrors copies the topics of one Kafka cluster to another: the same records
at the same offsets, with the same timestamps, keys, values and headers. It needs
nothing of the clusters but what any client may use; run --join, leave and
truncate need more.

Exit codes: 0 done, or stopped by a signal; 1 it did not work; 2 the command line
or a configuration file is wrong; 3 verify found differences; 4 it was not
done in time; 5 there is no such mirror; 6 another mirror of that name exists; 7 a
topic is not in a state for it; 8 a cluster cannot be reached; 130 a second signal did not
wait for the clean stop.`,
		Example: `  # run all mirrors into a cluster as a service, and make one
  kafka-mirrors daemon --bootstrap-server b:9092
  kafka-mirrors create --bootstrap-server b:9092 --mirror a-to-b --mirror-config a.properties
  kafka-mirrors start --bootstrap-server b:9092 --mirror a-to-b --topics 'orders.*'

  # mirror every topic that begins with "orders" until Ctrl-C
  kafka-mirrors run --source a:9092 --destination b:9092 --topics 'orders.*'

  # prove that both clusters hold the same records
  kafka-mirrors verify --source a:9092 --destination b:9092 --topics 'orders.*'`,
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,

		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetIn(strings.NewReader(""))
	root.AddGroup(&cobra.Group{ID: groupMirrors, Title: "Mirrors of a cluster, which a daemon runs:"},
		&cobra.Group{ID: groupSingle, Title: "One mirror, and what belongs to all:"})
	for _, c := range append(newOperations(s), newDaemon(s), newCreate(s), newList(s), newDescribe(s), newAlter(s), newPromote(s), newStop(s), newDelete(s)) {
		c.GroupID = groupMirrors
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{newRun(s), newPreflight(s), newVerify(s), newTruncate(s), newLeave(s)} {
		c.GroupID = groupSingle
		root.AddCommand(c)
	}
	root.AddCommand(newVersion())
	return root
}

// noArguments refuses words that are no flags, and what may have been meant.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasAvailableSubCommands() {
		return fmt.Errorf("%q is not a flag; every argument of %s is one", args[0], c.Name())
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return errors.New(text)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return failed(errors.New("this program was built without build information"))
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), version(info))
			return err
		},
	}
}

// version is one line: version, revision, Go.
func version(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	line := "kafka-mirrors " + info.Main.Version
	if rev := settings["vcs.revision"]; rev != "" {
		line += " " + rev[:min(12, len(rev))]
		if settings["vcs.modified"] == "true" {
			line += " (modified)"
		}
	}
	return line + " " + info.GoVersion
}

// flat takes joined errors apart, those inside a mirror's own error too.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flat(e)...)
		}
		return all
	}
	if m, ok := err.(*mirror.Error); ok && (m.Op == "new" || m.Op == "check") {
		return flat(m.Err)
	}
	return []error{err}
}

// placed says of each of several errors where it is.
func placed(where string, err error) error {
	var all []error
	for _, e := range flat(err) {
		all = append(all, fmt.Errorf("%s: %w", where, e))
	}
	return errors.Join(all...)
}
