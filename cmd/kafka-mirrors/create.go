package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/kafka"
)

// definitionFlags are the flags of create, alter and delete.
type definitionFlags struct {
	operator     operatorFlags
	mirror, file string
	set, unset   []string
	dryRun       bool
}

func (f *definitionFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.mirror, "mirror", "", "`name` of the mirror")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and change nothing")
	f.operator.register(c, 30*time.Second)
}

func newCreate(s streams) *cobra.Command {
	f := &definitionFlags{}
	c := &cobra.Command{
		Use:   "create",
		Short: "Define a mirror, which the daemon then runs",
		Long: `Define a mirror into the destination cluster: under which name, and how the source is
reached. The daemon takes it up, and has both clusters say who they are; the same cluster
at both ends is refused. It has no topics at first: see start. Where the source does not
answer, or no daemon runs, the mirror is defined all the same. Creating again what is there
changes nothing; something else of that name is refused.

` + definitionHelp() + "\n\n" + codesHelp,
		Example: `  kafka-mirrors create --bootstrap-server b:9092 --mirror a-to-b --mirror-config a.properties`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			def, err := f.read()
			def.Name = f.mirror
			return f.operator.bounded(c.Context(), s, func(ctx context.Context, d *desk) error { return f.create(ctx, d, def) }, needMirror(f.mirror), err)
		},
	}
	c.Flags().StringVar(&f.file, "mirror-config", "", "`file` with what the mirror is made of")
	f.register(c)
	return c
}

// read reads the file, and reports all that is wrong with it.
func (f *definitionFlags) read() (coordinator.Definition, error) {
	if f.file == "" {
		return coordinator.Definition{}, errors.New("--mirror-config: is needed")
	}
	def, err := readMirror(f.file)
	if def.Source == nil {
		return def, err
	}
	return def, errors.Join(err, placed(f.file, checkMirror(def)))
}

// checked: what the library finds wrong with a definition is a matter of the command line, too.
func (d *desk) checked(def coordinator.Definition) error {
	if err := d.c.Check(def); err != nil {
		return &outcome{exitUsage, err}
	}
	return nil
}

func (f *definitionFlags) create(ctx context.Context, d *desk, def coordinator.Definition) error {
	if err := d.checked(def); err != nil {
		return err
	}
	id, err := d.destinationID(ctx)
	if err != nil {
		return err
	}
	def.DestinationID = id
	on := d.c
	if f.dryRun {
		if on, err = d.rehearsal(ctx); err != nil {
			return err
		}
	}
	before, err := d.store.Definitions(ctx)
	if err != nil {
		return err
	}
	existed := slices.ContainsFunc(before, func(o coordinator.Definition) bool { return o.Name == def.Name })
	made, err := on.Create(ctx, def)
	if err != nil {
		return err
	}
	switch {
	case existed:
		fmt.Fprintf(d.out, "%s: is there already, as it was to be\n", def.Name)
	case f.dryRun:
		fmt.Fprintf(d.out, "%s: would be created\n", def.Name)
	}
	if f.dryRun {
		return nil
	}
	return f.taken(ctx, d, made, !existed)
}

// destinationID asks the destination who it is.
func (d *desk) destinationID(ctx context.Context) (string, error) {
	c, err := kafka.New(d.reached)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ID(ctx)
}

// taken waits until a daemon has taken a definition up. A source that does not answer is no failure; the
// destination itself as the source is one, and a mirror that is new is undone.
func (f *definitionFlags) taken(ctx context.Context, d *desk, def coordinator.Definition, fresh bool) error {
	a, err := ask(ctx, d.store, question{Ask: askFollow, Mirror: def.Name, Since: def.Revision})
	if err != nil {
		return err
	}
	defer a.withdraw()
	tick := time.NewTicker(post.look)
	defer tick.Stop()
	begun := time.Now()
	for {
		now, err := a.look(ctx)
		switch {
		case errors.Is(err, errNoDaemon):
			f.tell(d, fresh, def.Name+": no daemon answers; the next one takes it up")
			return nil
		case err != nil:
			return err
		case now == nil:
		case now.Error != "":
			return now.err()
		default:
			done, err := f.judge(ctx, d, def, now.Fares, fresh, time.Since(begun) > contactPatience)
			if done || err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("mirror %q is defined, and the daemon has not taken it up yet: %w", def.Name, ctx.Err())
		}
	}
}

// contactPatience is how long both clusters are waited for.
const contactPatience = 7 * time.Second

// judge says whether a mirror that was defined fares as it should, or as it is going to
// for some time.
func (f *definitionFlags) judge(ctx context.Context, d *desk, def coordinator.Definition, now *fares, fresh, late bool) (done bool, err error) {
	switch {
	case now.Running && now.Contacted:
		f.tell(d, fresh, def.Name+": the daemon runs it")
		return true, nil
	case now.Same && fresh:
		return true, errors.Join(&outcome{exitFailed, fmt.Errorf("mirror %q is not created: %w", def.Name, mirror.ErrSameCluster)}, d.c.Delete(ctx, def.Name), f.dropped(ctx, d))
	case now.Reason != "":
		return true, &outcome{exitPending, fmt.Errorf("mirror %q is defined, but cannot be opened yet: %s", def.Name, now.Reason)}
	case now.Running && late && now.Trouble != "":
		f.tell(d, fresh, def.Name+": the daemon runs it, and waits for a cluster: "+now.Trouble)
		return true, nil
	}
	return false, nil
}

// tell says how a mirror fares, and before it that it is a new one.
func (f *definitionFlags) tell(d *desk, fresh bool, text string) {
	if fresh {
		fmt.Fprintf(d.out, "%s: created\n", f.mirror)
	}
	fmt.Fprintln(d.out, printable(text))
}

func newAlter(s streams) *cobra.Command {
	f := &definitionFlags{}
	c := &cobra.Command{
		Use:   "alter",
		Short: "Change what a mirror is made of",
		Long: `Change how the source of a mirror is reached, or how it works. The daemon closes the
mirror, opens it anew and goes on where it was: no record is lost, none comes twice. Topics
are a matter of start and stop. A source that turns out to be another cluster is refused:
its partitions fail.

` + definitionHelp() + "\n\n" + codesHelp,
		Example: `  # one key
  kafka-mirrors alter --bootstrap-server b:9092 --mirror a-to-b --add-config retry.max=1m

  # all that the file has, and one key as if it had never been there
  kafka-mirrors alter --bootstrap-server b:9092 --mirror a-to-b --add-config-file a.properties --delete-config client.id`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			change, err := f.change()
			return f.operator.bounded(c.Context(), s, func(ctx context.Context, d *desk) error { return f.alter(ctx, d, change) }, needMirror(f.mirror), err)
		},
	}
	c.Flags().StringVar(&f.file, "add-config-file", "", "`file` with keys to be set")
	c.Flags().StringArrayVar(&f.set, "add-config", nil, "one `key=value` to be set; may be repeated")
	c.Flags().StringSliceVar(&f.unset, "delete-config", nil, "`keys` to be taken away")
	f.register(c)
	return c
}

// change is what the flags want of a definition.
func (f *definitionFlags) change() (func(*coordinator.Definition) error, error) {
	var errs []error
	var more coordinator.Definition
	if f.file != "" {
		var err error
		more, err = readMirror(f.file)
		errs = append(errs, err)
	}
	var single []property
	for _, text := range f.set {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("--add-config: %q is not key=value", text))
			continue
		}
		single = append(single, property{key: strings.TrimSpace(key), value: value})
	}
	given, err := sortMirror(single)
	errs = append(errs, placed("--add-config", err))
	for _, key := range f.unset {
		if keptIn(&coordinator.Definition{Source: map[string]string{}, Destination: map[string]string{}, Config: map[string]string{}}, key) == nil {
			errs = append(errs, fmt.Errorf("--delete-config: %s: unknown key", key))
		}
	}
	if f.file == "" && len(f.set)+len(f.unset) == 0 {
		errs = append(errs, errors.New("nothing to change: give --add-config, --add-config-file or --delete-config"))
	}
	return func(d *coordinator.Definition) error {
		for _, part := range []*map[string]string{&d.Source, &d.Destination, &d.Config} {
			if *part == nil {
				*part = map[string]string{}
			}
		}
		for _, from := range []coordinator.Definition{more, given} {
			maps.Copy(d.Source, from.Source)
			maps.Copy(d.Destination, from.Destination)
			maps.Copy(d.Config, from.Config)
		}
		for _, key := range f.unset {
			delete(keptIn(d, key), strings.TrimPrefix(key, "source."))
		}
		return checkMirror(*d)
	}, errors.Join(errs...)
}

func (f *definitionFlags) alter(ctx context.Context, d *desk, change func(*coordinator.Definition) error) error {
	before, err := d.c.Describe(ctx, f.mirror)
	if err != nil {
		return err
	}
	on := d.c
	if f.dryRun {
		if on, err = d.rehearsal(ctx); err != nil {
			return err
		}
	}
	wanted := before.Definition
	wanted.Source, wanted.Destination, wanted.Config = maps.Clone(wanted.Source), maps.Clone(wanted.Destination), maps.Clone(wanted.Config)
	if err := errors.Join(change(&wanted), d.c.Check(wanted)); err != nil {
		return &outcome{exitUsage, err}
	}
	after, err := on.Alter(ctx, f.mirror, change)
	if err != nil {
		return err
	}
	hideSecrets(&before.Definition)
	hideSecrets(&after)
	lines := changes(before.Definition, after)
	for _, line := range lines {
		fmt.Fprintf(d.out, "%s: %s\n", f.mirror, printable(line))
	}
	if len(lines) == 0 {
		fmt.Fprintf(d.out, "%s: nothing changes\n", f.mirror)
		return nil
	}
	if f.dryRun {
		fmt.Fprintf(d.out, "%s: would be altered\n", f.mirror)
		return nil
	}
	fmt.Fprintf(d.out, "%s: altered\n", f.mirror)
	return f.taken(ctx, d, after, false)
}

// changes are the keys in which two definitions differ, one line each.
func changes(before, after coordinator.Definition) (lines []string) {
	for _, part := range []struct {
		prefix   string
		was, now map[string]string
	}{{"source.", before.Source, after.Source}, {"", before.Destination, after.Destination}, {"", before.Config, after.Config}} {
		for _, key := range slices.Sorted(maps.Keys(part.was)) {
			if now, ok := part.now[key]; !ok || now != part.was[key] {
				lines = append(lines, "- "+part.prefix+key+"="+part.was[key])
			}
		}
		for _, key := range slices.Sorted(maps.Keys(part.now)) {
			if was, ok := part.was[key]; !ok || was != part.now[key] {
				lines = append(lines, "+ "+part.prefix+key+"="+part.now[key])
			}
		}
	}
	return lines
}
