package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func newDelete(s streams) *cobra.Command {
	f := &definitionFlags{}
	c := &cobra.Command{
		Use:   "delete",
		Short: "Forget a mirror whose topics are all stopped",
		Long: `Forget a mirror, with all that is stored of it. It is refused while one of its topics is
not stopped, and there is no force: stop first. The topics at the destination stay as they
are. What is forgotten too is where they stopped: a mirror back to the source cannot copy
the delta alone any more.

` + codesHelp,
		Example: `  kafka-mirrors delete --bootstrap-server b:9092 --mirror a-to-b`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.operator.bounded(c.Context(), s, f.delete, needMirror(f.mirror))
		},
	}
	f.register(c)
	return c
}

func (f *definitionFlags) delete(ctx context.Context, d *desk) error {
	if _, err := d.c.Describe(ctx, f.mirror); err != nil {
		return err
	}
	on := d.c
	if f.dryRun {
		var err error
		if on, err = d.rehearsal(ctx); err != nil {
			return err
		}
	}
	if err := on.Delete(ctx, f.mirror); err != nil {
		return err
	}
	if f.dryRun {
		fmt.Fprintf(d.out, "%s: would be deleted\n", f.mirror)
		return nil
	}
	if err := f.dropped(ctx, d); err != nil {
		return fmt.Errorf("%s is deleted, but the daemon has not let go of it: %w", f.mirror, err)
	}
	fmt.Fprintf(d.out, "%s: deleted\n", f.mirror)
	return nil
}

// dropped has the daemon let go of the mirror, and forget what it may have stored meanwhile.
func (f *definitionFlags) dropped(ctx context.Context, d *desk) error {
	_, err := once(ctx, d.store, question{Ask: askDelete, Mirror: f.mirror})
	if errors.Is(err, errNoDaemon) { // nobody runs it
		return nil
	}
	return err
}
