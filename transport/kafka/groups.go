package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const slotGroups = "groups"

// Groups lists the consumer groups of all brokers, by name. One broker that does
// not answer fails the call: a list with holes would pass for the truth.
func (c *Cluster) Groups(ctx context.Context) ([]cluster.Group, error) {
	meta, err := c.client.Metadata(ctx, []string{}, true)
	if err != nil {
		return nil, err
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		groups = map[string]cluster.Group{}
		failed error
	)
	for id := range meta.Brokers {
		wg.Go(func() {
			got, err := c.groupsAt(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = fmt.Errorf("groups of broker %d: %w", id, err)
			}
			for _, g := range got {
				groups[g.Name] = g
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return nil, failed
	}
	all := make([]cluster.Group, 0, len(groups))
	for _, g := range groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b cluster.Group) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (c *Cluster) groupsAt(ctx context.Context, broker int32) ([]cluster.Group, error) {
	for try := 1; ; try++ {
		got, err := c.groupsOnce(ctx, broker)
		// COORDINATOR_LOAD_IN_PROGRESS passes by itself.
		if err == nil || !moved(err) || try == loadingTries || !sleep(ctx, pause(try)) {
			return got, err
		}
	}
}

// loadingTries is how often a coordinator that is still loading is asked.
const loadingTries = 6

func (c *Cluster) groupsOnce(ctx context.Context, broker int32) ([]cluster.Group, error) {
	conn, err := c.conn(ctx, broker, slotGroups)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListGroupsRequest()
	req.TypesFilter = []string{"classic", "consumer"} // from version 5 on; there are share groups only from then on
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	list := answer.(*kmsg.ListGroupsResponse)
	if err := wire.CodeError(list.ErrorCode); err != nil {
		return nil, err
	}
	var groups []cluster.Group
	for _, g := range list.Groups {
		// The protocol is empty where a group only ever committed; other protocols
		// (connect) keep no offsets here.
		if g.ProtocolType == "consumer" || g.ProtocolType == "" {
			groups = append(groups, cluster.Group{Name: g.Group, State: cluster.GroupState(g.GroupState), Type: strings.ToLower(g.GroupType)})
		}
	}
	return groups, nil
}

// coordinators finds the coordinator of each group, all in one request where the
// cluster knows how (FindCoordinator 4, Kafka 3.0).
func (c *Cluster) coordinators(ctx context.Context, groups []string) (byBroker map[int32][]int, errs []error) {
	errs = make([]error, len(groups))
	byBroker = map[int32][]int{}
	conn, err := c.client.Any(ctx)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return byBroker, errs
	}
	if conn.MaxVersion(int16(kmsg.FindCoordinator)) < 4 {
		for i, g := range groups {
			conn, err := c.client.Coordinator(ctx, g)
			if errs[i] = err; err == nil {
				byBroker[conn.Addr().ID] = append(byBroker[conn.Addr().ID], i)
			}
		}
		return byBroker, errs
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = groups
	answer, err := conn.Do(ctx, req)
	index := make(map[string]int, len(groups))
	for i, g := range groups {
		index[g] = i
		if errs[i] = err; err == nil {
			errs[i] = errMissing
		}
	}
	if err != nil {
		return byBroker, errs
	}
	for _, found := range answer.(*kmsg.FindCoordinatorResponse).Coordinators {
		i, ok := index[found.Key]
		if !ok {
			continue
		}
		if errs[i] = saying(found.ErrorCode, found.ErrorMessage); errs[i] == nil {
			byBroker[found.NodeID] = append(byBroker[found.NodeID], i)
		}
	}
	return byBroker, errs
}
