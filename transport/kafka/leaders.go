package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
)

// Slots: connections to one broker that do not wait for each other.
const (
	slotAsk  = "ask"  // short questions
	slotRead = "read" // single reads
)

// Leaders says who leads each partition, and the topics' ids.
func (c *Cluster) Leaders(ctx context.Context, partitions []cluster.Partition, fresh bool) ([]fetcher.LeaderAnswer, error) {
	meta, err := c.client.Metadata(ctx, topicNames(partitions), fresh)
	if err != nil {
		return nil, err
	}
	answers := make([]fetcher.LeaderAnswer, len(partitions))
	for i, p := range partitions {
		answers[i] = leaderIn(meta, p)
	}
	return answers, nil
}

func leaderIn(meta *wire.Metadata, p cluster.Partition) fetcher.LeaderAnswer {
	none := fetcher.LeaderAnswer{Leader: cluster.Leader{Broker: -1, Epoch: cluster.NoEpoch}}
	t, ok := meta.Topics[p.Topic]
	switch {
	case !ok:
		none.Err = at(p, cluster.ErrUnknownTopic)
		return none
	case t.Err != nil:
		none.Err = at(p, t.Err)
		return none
	}
	none.TopicID = t.ID
	if p.Partition < 0 || int(p.Partition) >= len(t.Partitions) {
		none.Err = at(p, cluster.ErrUnknownTopic)
		return none
	}
	pm := t.Partitions[p.Partition]
	answer := fetcher.LeaderAnswer{Leader: pm.Leader, TopicID: t.ID}
	if pm.Leader.Broker < 0 {
		answer.Err = at(p, errors.Join(cluster.ErrUnavailable, pm.Err))
	}
	return answer
}

// ask asks one broker about the partitions at idx and puts what is wrong with one
// of them into errs at its index. The error it returns is everyone's.
type ask func(ctx context.Context, conn *wire.Conn, idx []int, errs []error) error

// A question follows its partitions to other leaders, for about 3 s: that is how
// long a planned move takes at most, and a new leader to know its high watermark
// (OFFSET_NOT_AVAILABLE). Of a broker that is gone fewer tries are made: whoever
// asks comes back.
const (
	leaderTries = 8
	deadTries   = 3
)

func pause(try int) time.Duration { return min(50*time.Millisecond<<try, 500*time.Millisecond) }

// atLeaders puts a question about many partitions to their leaders, one request a
// broker, all brokers at once, and asks again where leadership moved. An
// unreachable broker fails only what it leads.
func (c *Cluster) atLeaders(ctx context.Context, partitions []cluster.Partition, slot string, question ask) []error {
	errs := make([]error, len(partitions))
	left := make([]int, len(partitions))
	for i := range left {
		left[i] = i
	}
	for try := range leaderTries {
		if try > 0 && !sleep(ctx, pause(try)) {
			break
		}
		c.askOnce(ctx, partitions, left, slot, try > 0, question, errs)
		left = slices.DeleteFunc(left, func(i int) bool {
			return !moved(errs[i]) || try+1 >= deadTries && errors.Is(errs[i], cluster.ErrUnreachable)
		})
		if len(left) == 0 {
			break
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = at(partitions[i], err)
		}
	}
	return errs
}

func (c *Cluster) askOnce(ctx context.Context, partitions []cluster.Partition, idx []int, slot string, fresh bool, question ask, errs []error) {
	asked := make([]cluster.Partition, len(idx))
	for k, i := range idx {
		asked[k] = partitions[i]
	}
	leaders, err := c.Leaders(ctx, asked, fresh)
	if err != nil {
		for _, i := range idx {
			errs[i] = err
		}
		return
	}
	byBroker := map[int32][]int{}
	for k, i := range idx {
		if errs[i] = leaders[k].Err; errs[i] == nil {
			byBroker[leaders[k].Broker] = append(byBroker[leaders[k].Broker], i)
		}
	}
	var wg sync.WaitGroup
	for broker, group := range byBroker {
		wg.Go(func() {
			conn, err := c.conn(ctx, broker, slot)
			if err == nil {
				err = question(ctx, conn, group, errs)
			}
			if err != nil {
				for _, i := range group {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	for _, i := range idx {
		if moved(errs[i]) {
			c.client.Stale(partitions[i].Topic)
		}
	}
}

// conn is a connection to a broker. It does not wait long for one that could not be
// reached just now: leaders may have moved away from it, and whoever asks looks
// that up and comes back. A dial that takes longer goes on for the next to ask.
func (c *Cluster) conn(ctx context.Context, broker int32, slot string) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout/4)
	defer cancel()
	return c.client.Conn(ctx, broker, slot)
}

// moved reports errors after which another broker may know better.
func moved(err error) bool {
	return errors.Is(err, cluster.ErrNotLeader) || errors.Is(err, cluster.ErrLeaderEpoch) ||
		errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrUnavailable) ||
		errors.Is(err, cluster.ErrUnknownOutcome)
}

// topicGroup is the part of a question about one topic.
type topicGroup struct {
	topic string
	idx   []int
}

// byTopic groups indexes by topic, topics and partitions in order, because
// brokers want each topic once in a request. It sorts idx.
func byTopic(partitions []cluster.Partition, idx []int) []topicGroup {
	slices.SortFunc(idx, func(a, b int) int { return partitions[a].Compare(partitions[b]) })
	var groups []topicGroup
	for start := 0; start < len(idx); {
		topic, end := partitions[idx[start]].Topic, start+1
		for end < len(idx) && partitions[idx[end]].Topic == topic {
			end++
		}
		groups = append(groups, topicGroup{topic, idx[start:end]})
		start = end
	}
	return groups
}

// answered finds the asked partition an answer belongs to. Every index that was
// not found in the answer is reported by missing.
type answered struct {
	partitions []cluster.Partition
	byName     map[cluster.Partition]int
}

func expect(partitions []cluster.Partition, idx []int) answered {
	a := answered{partitions, make(map[cluster.Partition]int, len(idx))}
	for _, i := range idx {
		a.byName[partitions[i]] = i
	}
	return a
}

// take gives the index of a partition once.
func (a answered) take(topic string, partition int32) (int, bool) {
	p := cluster.Partition{Topic: topic, Partition: partition}
	i, ok := a.byName[p]
	delete(a.byName, p)
	return i, ok
}

func (a answered) missing(errs []error) {
	for _, i := range a.byName {
		errs[i] = errMissing
	}
}

var errMissing = errors.New("the broker's answer leaves the partition out")

func topicNames(partitions []cluster.Partition) []string {
	names := make([]string, 0, len(partitions))
	for _, p := range partitions {
		names = append(names, p.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sleep waits for d and reports whether ctx is still good.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
