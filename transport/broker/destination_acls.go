package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
)

var _ acl.Sink = (*Destination)(nil)

// errNoACLs: the Admin does not do it.
var errNoACLs = fmt.Errorf("ACLs: %w", errors.ErrUnsupported)

// ACLs gives all access rules, where the Admin can.
func (d *Destination) ACLs(ctx context.Context) ([]cluster.Binding, error) {
	if s, can := d.cfg.Admin.(acl.Sink); can {
		return s.ACLs(ctx)
	}
	return nil, errNoACLs
}

// CreateACLs adds access rules, where the Admin can.
func (d *Destination) CreateACLs(ctx context.Context, bindings []cluster.Binding) []error {
	return d.changeACLs(bindings, func(s acl.Sink) []error { return s.CreateACLs(ctx, bindings) })
}

// DeleteACLs removes access rules, where the Admin can.
func (d *Destination) DeleteACLs(ctx context.Context, bindings []cluster.Binding) []error {
	return d.changeACLs(bindings, func(s acl.Sink) []error { return s.DeleteACLs(ctx, bindings) })
}

func (d *Destination) changeACLs(bindings []cluster.Binding, change func(acl.Sink) []error) []error {
	if s, can := d.cfg.Admin.(acl.Sink); can {
		return change(s)
	}
	errs := make([]error, len(bindings))
	for i := range errs {
		errs[i] = errNoACLs
	}
	return errs
}
