package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/offsets"
)

type group struct {
	name    string
	kind    string
	members int
	offsets []cluster.Committed // sorted by partition
}

func (g *group) state() cluster.GroupState {
	if g.members > 0 {
		return "Stable"
	}
	return "Empty"
}

func (g *group) commit(o cluster.Committed) {
	i, found := slices.BinarySearchFunc(g.offsets, o.Partition, func(c cluster.Committed, p cluster.Partition) int { return c.Partition.Compare(p) })
	if found {
		g.offsets[i] = o
	} else {
		g.offsets = slices.Insert(g.offsets, i, o)
	}
}

// group is one by its name, made when it is first named.
func (c *Cluster) group(name string) *group {
	g := c.groups[name]
	if g == nil {
		g = &group{name: name, kind: "classic"}
		c.groups[name] = g
	}
	return g
}

// SetMembers gives a group so many members; it is made if need be. With members it
// is "Stable" and refuses commits from outside, without it is "Empty".
func (c *Cluster) SetMembers(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group(name).members = n
}

// SetGroupType makes a group "classic", "consumer" or "share".
func (c *Cluster) SetGroupType(name, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group(name).kind = kind
}

// DeleteGroup deletes a group with its offsets.
func (c *Cluster) DeleteGroup(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, name)
}

// CommitAs commits offsets as a member of the group, or as a consumer without
// membership if there are none. Any offset is taken, as Kafka does.
func (c *Cluster) CommitAs(name string, committed ...cluster.Committed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commit(name, committed)
}

// commit commits all or, where a partition is not known, nothing.
func (c *Cluster) commit(name string, committed []cluster.Committed) error {
	for _, o := range committed {
		if _, err := c.find(o.Partition); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
	}
	g := c.group(name)
	for _, o := range committed {
		g.commit(o)
	}
	return nil
}

// Groups lists all groups by name.
func (cl *Client) Groups(ctx context.Context) ([]cluster.Group, error) {
	return call(ctx, cl, Op{Call: CallGroups, Broker: -1}, func() ([]cluster.Group, error) {
		var out []cluster.Group
		for _, g := range cl.c.groups {
			out = append(out, cluster.Group{Name: g.name, State: g.state(), Type: g.kind})
		}
		slices.SortFunc(out, func(a, b cluster.Group) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	})
}

// Committed gives all committed offsets of groups by partition. A group that is not
// there has none.
func (cl *Client) Committed(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	return call(ctx, cl, Op{Call: CallCommitted, Broker: -1, Names: groups}, func() ([]offsets.CommittedAnswer, error) {
		out := make([]offsets.CommittedAnswer, len(groups))
		for i, name := range groups {
			if g := cl.c.groups[name]; g != nil {
				out[i].Offsets = slices.Clone(g.offsets)
			}
		}
		return out, nil
	})
}

// Commit writes offsets of a group without members.
func (cl *Client) Commit(ctx context.Context, name string, committed []cluster.Committed) error {
	_, err := call(ctx, cl, Op{Call: CallCommit, Broker: -1, Names: []string{name}}, func() (struct{}, error) {
		if g := cl.c.groups[name]; g != nil && g.members > 0 {
			return struct{}{}, fmt.Errorf("group %s: %w: %w: %d", name, cluster.ErrRefused, cluster.ErrMembers, g.members)
		}
		return struct{}{}, cl.c.commit(name, committed)
	})
	return err
}

// ShareOffsets gives the start offsets of share groups.
func (cl *Client) ShareOffsets(ctx context.Context, groups []string) ([]offsets.CommittedAnswer, error) {
	return cl.Committed(ctx, groups)
}

// SetShareOffsets sets the start offsets of a share group without members; one that is not there is
// made.
func (cl *Client) SetShareOffsets(ctx context.Context, name string, starts []cluster.Committed) error {
	_, err := call(ctx, cl, Op{Call: CallCommit, Broker: -1, Names: []string{name}}, func() (struct{}, error) {
		g := cl.c.groups[name]
		switch {
		case g != nil && g.kind != "share":
			return struct{}{}, fmt.Errorf("group %s: %w: it is a %s group", name, cluster.ErrRefused, g.kind)
		case g != nil && g.members > 0:
			return struct{}{}, fmt.Errorf("share group %s: %w: %w: %d", name, cluster.ErrRefused, cluster.ErrMembers, g.members)
		case g == nil:
			cl.c.group(name).kind = "share"
		}
		return struct{}{}, cl.c.commit(name, starts)
	})
	return err
}
