package memory

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/preflight"
)

var _ preflight.Inspector = (*Client)(nil)

// Inspect tells which brokers are up, and of topics; everybody may do everything.
func (cl *Client) Inspect(ctx context.Context, names, groups []string) (*preflight.Inspection, error) {
	return call(ctx, cl, Op{Call: CallInspect, Broker: -1, Names: append(names, groups...)}, func() (*preflight.Inspection, error) {
		all := preflight.All
		in := &preflight.Inspection{Topics: map[string]preflight.Described{}}
		in.Rights = preflight.Rights{Cluster: &all, Topics: map[string]preflight.Operations{}, Groups: map[string]preflight.Operations{}}
		for i, b := range cl.c.brokers {
			told := preflight.Broker{ID: int32(i + 1), Address: fmt.Sprintf("memory:%d", i+1)}
			if !b.up {
				told.Err = fmt.Errorf("%w: the broker is down", cluster.ErrUnreachable)
			}
			in.Brokers = append(in.Brokers, told)
		}
		for _, n := range names {
			in.Rights.Topics[n] = preflight.All
			d := preflight.Described{}
			if t := cl.c.topics[n]; t != nil {
				d.Exists, d.Factor = true, t.factor
				for _, p := range t.partitions {
					if p.leader < 0 {
						d.Leaderless = append(d.Leaderless, p.id.Partition)
					} else if at := p.leads().Broker; at > 0 {
						in.Brokers[at-1].Leads++
					}
				}
			}
			in.Topics[n] = d
		}
		for _, g := range groups {
			in.Rights.Groups[g] = preflight.All
		}
		return in, nil
	})
}
