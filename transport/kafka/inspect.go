package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"

	"github.com/clustermirror/mirror/internal/wire"
	"github.com/clustermirror/mirror/preflight"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var _ preflight.Inspector = (*Cluster)(nil)

// inspectTopics is how many topics one request of an inspection names.
const inspectTopics = 1000

// Inspect asks every broker, and about topics and groups what the user may do with them.
func (c *Cluster) Inspect(ctx context.Context, names, groups []string) (*preflight.Inspection, error) {
	meta, err := c.client.Metadata(ctx, []string{}, true)
	if err != nil {
		return nil, err
	}
	in := &preflight.Inspection{
		Brokers: make([]preflight.Broker, len(meta.Brokers)), Topics: make(map[string]preflight.Described, len(names)),
		Client: &preflight.Client{GapFill: c.cfg.GapFill.String(), MaxStartFill: c.cfg.MaxStartFill, Rebuild: c.cfg.Truncation == Rebuild},
	}
	ids := slices.Sorted(maps.Keys(meta.Brokers))
	together(len(ids), func(i int) { in.Brokers[i] = c.inspectBroker(ctx, meta.Brokers[ids[i]]) })
	conn, err := c.client.Any(ctx)
	if err != nil {
		return in, err
	}
	if in.Rights.Cluster, err = clusterRights(ctx, conn); err != nil {
		return in, fmt.Errorf("rights on the cluster: %w", err)
	}
	if conn.MaxVersion(int16(kmsg.Metadata)) >= metadataRights {
		in.Rights.Topics = make(map[string]preflight.Operations, len(names))
	}
	for some := range slices.Chunk(names, inspectTopics) {
		if err := inspectSome(ctx, conn, some, in); err != nil {
			return in, fmt.Errorf("rights on topics: %w", err)
		}
	}
	in.Rights.Groups, err = groupRights(ctx, conn, groups)
	return in, err
}

// brokerSettings are those of a broker that limit what it takes.
var brokerSettings = []string{"socket.request.max.bytes", "message.max.bytes"}

func (c *Cluster) inspectBroker(ctx context.Context, at wire.Addr) preflight.Broker {
	b := preflight.Broker{ID: at.ID, Address: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))}
	conn, err := c.client.Conn(ctx, at.ID, slotAsk)
	if err != nil {
		b.Err = err
		if failed := new(wire.Error); errors.As(err, &failed) {
			b.Err, b.Cause = failed, failed.Cause.String()
		}
		return b
	}
	b.Versions = conn.Versions()
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(at.ID)), brokerSettings
	req.Resources = append(req.Resources, r)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return b
	}
	for _, r := range answer.(*kmsg.DescribeConfigsResponse).Resources {
		for _, e := range r.Configs {
			if e.Value == nil || r.ErrorCode != 0 {
				continue
			}
			if b.Settings == nil {
				b.Settings = map[string]string{}
			}
			b.Settings[e.Name] = *e.Value
		}
	}
	return b
}

// untold is what brokers answer that were not asked for rights.
const untold = math.MinInt32

// metadataRights: the first version of a Metadata request that tells rights, and the last that tells
// those on the cluster (KIP-430, KIP-700).
const metadataRights, metadataClusterRights = 8, 10

// clusterRights is what the user may do on the cluster; nil where brokers do not tell.
func clusterRights(ctx context.Context, conn *wire.Conn) (*preflight.Operations, error) {
	ops, code := int32(untold), int16(0)
	switch d, m := kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrMetadataRequest(); {
	case conn.MaxVersion(d.Key()) >= 0:
		d.IncludeClusterAuthorizedOperations = true
		answer, err := conn.Do(ctx, d)
		if err != nil {
			return nil, err
		}
		got := answer.(*kmsg.DescribeClusterResponse)
		ops, code = got.ClusterAuthorizedOperations, got.ErrorCode
	case conn.MaxVersion(m.Key()) >= metadataRights:
		m.IncludeClusterAuthorizedOperations, m.Topics = true, []kmsg.MetadataRequestTopic{}
		answer, err := conn.DoVersion(ctx, m, min(conn.MaxVersion(m.Key()), metadataClusterRights))
		if err != nil {
			return nil, err
		}
		ops = answer.(*kmsg.MetadataResponse).AuthorizedOperations
	}
	if err := wire.CodeError(code); err != nil || ops == untold {
		return nil, err
	}
	of := preflight.Operations(ops)
	return &of, nil
}

// inspectSome asks about topics by name; those that are not there are told as such.
func inspectSome(ctx context.Context, conn *wire.Conn, names []string, in *preflight.Inspection) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = false, true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	topics := answer.(*kmsg.MetadataResponse).Topics
	for i := range topics {
		t := &topics[i]
		if t.Topic == nil {
			continue
		}
		in.Topics[*t.Topic] = described(t)
		for _, p := range t.Partitions {
			if k := slices.IndexFunc(in.Brokers, func(b preflight.Broker) bool { return b.ID == p.Leader }); k >= 0 {
				in.Brokers[k].Leads++
			}
		}
		if in.Rights.Topics != nil && t.AuthorizedOperations != untold {
			in.Rights.Topics[*t.Topic] = preflight.Operations(t.AuthorizedOperations)
		}
	}
	return nil
}

// unknownTopic is UNKNOWN_TOPIC_OR_PARTITION.
const unknownTopic = 3

func described(t *kmsg.MetadataResponseTopic) preflight.Described {
	d := preflight.Described{Exists: len(t.Partitions) > 0}
	if t.ErrorCode != unknownTopic {
		d.Err = wire.CodeError(t.ErrorCode)
	}
	for _, p := range t.Partitions {
		if n := len(p.Replicas); d.Factor == 0 || n < d.Factor {
			d.Factor = n
		}
		if p.Leader < 0 {
			d.Leaderless = append(d.Leaderless, p.Partition)
		}
	}
	slices.Sort(d.Leaderless)
	return d
}

// groupRights tells of each group whether its offsets may be committed. A heartbeat of a
// member that there is not needs the same right, changes nothing, and every broker answers
// it: a look-up of coordinators would create the topic that they need.
func groupRights(ctx context.Context, conn *wire.Conn, groups []string) (map[string]preflight.Operations, error) {
	const refused = 30 // GROUP_AUTHORIZATION_FAILED
	ops, errs := make([]preflight.Operations, len(groups)), make([]error, len(groups))
	together(len(groups), func(i int) {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.Generation, req.MemberID = groups[i], -1, "nobody"
		answer, err := conn.Do(ctx, req)
		if errs[i] = err; err == nil && answer.(*kmsg.HeartbeatResponse).ErrorCode != refused {
			ops[i] = preflight.Set(preflight.Read)
		}
	})
	of := make(map[string]preflight.Operations, len(groups))
	for i, g := range groups {
		if errs[i] == nil {
			of[g] = ops[i]
		}
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return of, fmt.Errorf("rights on groups: %w", errs[i])
	}
	return of, nil
}
