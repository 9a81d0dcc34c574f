package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/preflight"
)

// Preflight is the function Preflight for a mirror that is defined, with ends of its own, and
// besides its topics those that are to be started. It does not matter whether the mirror
// runs, here or elsewhere.
func (c *Controller) Preflight(ctx context.Context, mirror string, besides Topics) (r *preflight.Report, err error) {
	def, err := c.definition(ctx, mirror)
	if err != nil {
		return nil, fault("preflight", mirror, err)
	}
	opts, err := c.options(def)
	if err != nil {
		return nil, fault("preflight", mirror, err)
	}
	opts.Topics.Include = append(opts.Topics.Include, besides.Include...)
	opts.Topics.Exclude = append(opts.Topics.Exclude, besides.Exclude...)
	source, destination, err := c.open(ctx, def)
	defer func() { err = errors.Join(err, closeEnds(source, destination)) }()
	if err != nil {
		return nil, fault("preflight", mirror, fmt.Errorf("open: %w", err))
	}
	if c.opts.Peers != nil {
		if opts.Positions, err = c.opts.Peers(ctx, def); err != nil {
			return nil, fault("preflight", mirror, fmt.Errorf("open: %w", err))
		}
		defer func() { err = errors.Join(err, closeEnds(opts.Positions)) }()
	}
	m, err := New(def.Name, source, destination, &opts)
	if err != nil {
		return nil, err
	}
	m.catalog.pin(def.SourceID, def.DestinationID)
	return m.preflight(ctx)
}
