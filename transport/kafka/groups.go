package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const slotGroups = "groups"

// Groups lists the groups of all brokers that keep offsets, by name. With an error the list has
// holes: it says which brokers have not answered.
func (c *Cluster) Groups(ctx context.Context) ([]cluster.Group, error) {
	meta, err := c.client.Metadata(ctx, []string{}, true)
	if err != nil {
		return nil, err
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		groups = map[string]cluster.Group{}
		failed []error
	)
	for id := range meta.Brokers {
		wg.Go(func() {
			got, err := c.groupsAt(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("groups of broker %d: %w", id, err))
			}
			for _, g := range got {
				groups[g.Name] = g
			}
		})
	}
	wg.Wait()
	all := slices.SortedFunc(maps.Values(groups), func(a, b cluster.Group) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(failed...)
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
	answer, err := conn.Do(ctx, kmsg.NewPtrListGroupsRequest())
	if err != nil {
		return nil, err
	}
	list := answer.(*kmsg.ListGroupsResponse)
	if err := wire.CodeError(list.ErrorCode); err != nil {
		return nil, err
	}
	var groups []cluster.Group
	for _, g := range list.Groups {
		if keepsOffsets[g.ProtocolType] {
			groups = append(groups, cluster.Group{Name: g.Group, State: cluster.GroupState(g.GroupState), Type: strings.ToLower(g.GroupType)})
		}
	}
	return groups, nil
}

// keepsOffsets are the protocol types of groups whose offsets the cluster keeps. It is empty where a
// group only ever committed; others (connect) keep none here.
var keepsOffsets = map[string]bool{"": true, "consumer": true, "share": true, "streams": true}

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
		return c.coordinatorsOneByOne(ctx, groups)
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
			c.client.LearnCoordinator(found.Key, found.NodeID)
		}
	}
	return byBroker, errs
}

func (c *Cluster) coordinatorsOneByOne(ctx context.Context, groups []string) (byBroker map[int32][]int, errs []error) {
	errs = make([]error, len(groups))
	at := make([]int32, len(groups))
	together(len(groups), func(i int) {
		conn, err := c.client.Coordinator(ctx, groups[i], slotGroups)
		if errs[i] = err; err == nil {
			at[i] = conn.Addr().ID
		}
	})
	byBroker = map[int32][]int{}
	for i, err := range errs {
		if err == nil {
			byBroker[at[i]] = append(byBroker[at[i]], i)
		}
	}
	return byBroker, errs
}

// together does n small things, some at a time: where brokers are asked for one group after
// the other, the way there and back is not waited for each time.
func together(n int, do func(i int)) {
	const some = 32
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, some) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wg.Wait()
}
