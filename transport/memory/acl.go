package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
)

var _ acl.Sink = (*Client)(nil)

func compareBindings(a, b cluster.Binding) int {
	return cmp.Or(
		cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.Name, b.Name), cmp.Compare(a.PatternType, b.PatternType),
		cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(a.Permission, b.Permission),
	)
}

// ACLs lists all access rules, sorted. They are kept and listed, not enforced.
func (cl *Client) ACLs(ctx context.Context) ([]cluster.Binding, error) {
	return call(ctx, cl, Op{Call: CallACLs, Broker: -1}, func() ([]cluster.Binding, error) { return slices.Clone(cl.c.acls), nil })
}

// CreateACLs adds rules; one that is there already is no error.
func (cl *Client) CreateACLs(ctx context.Context, bindings []cluster.Binding) []error {
	return callEach(ctx, cl, Op{Call: CallCreateACLs, Broker: -1}, len(bindings), func(i int) error {
		if at, found := slices.BinarySearchFunc(cl.c.acls, bindings[i], compareBindings); !found {
			cl.c.acls = slices.Insert(cl.c.acls, at, bindings[i])
		}
		return nil
	})
}

// DeleteACLs removes rules; one that is not there is no error.
func (cl *Client) DeleteACLs(ctx context.Context, bindings []cluster.Binding) []error {
	return callEach(ctx, cl, Op{Call: CallDeleteACLs, Broker: -1}, len(bindings), func(i int) error {
		if at, found := slices.BinarySearchFunc(cl.c.acls, bindings[i], compareBindings); found {
			cl.c.acls = slices.Delete(cl.c.acls, at, at+1)
		}
		return nil
	})
}
