package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// Connections to one broker that do not wait for each other.
const (
	slotAsk     = "state-ask"
	slotRead    = "state-read"
	slotProduce = "state-produce"
)

// A cluster of which no broker answers is given up after so many tries or so long.
const (
	nobodyTries = 3
	nobodyTime  = 3 * time.Second
)

// patience counts tries at a cluster of which no broker answers.
type patience struct {
	since time.Time
	tries int
}

// over reports whether err, and those before it, are enough to give up.
func (p *patience) over(err error) bool {
	if !errors.Is(err, errNobody) {
		*p = patience{}
		return false
	}
	if p.tries++; p.tries == 1 {
		p.since = time.Now()
	}
	return p.tries >= nobodyTries || time.Since(p.since) > nobodyTime
}

func pause(try int) time.Duration { return min(50*time.Millisecond<<min(try, 10), time.Second) }

// awaited is a pause of who is waited for. A leader that died has another one in its place once its session
// has ended, within ten seconds, and that is to be seen soon.
func awaited(try int) time.Duration {
	if try > awaitedTries {
		return pause(try)
	}
	return min(pause(try), awaitedMost)
}

const (
	awaitedTries = 50
	awaitedMost  = 200 * time.Millisecond
)

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

// question asks one broker about some partitions and puts what is wrong with one of
// them into errs. The error it returns is everyone's.
type question func(ctx context.Context, conn *wire.Conn, parts []int32, errs map[int32]error) error

// errNobody says that the cluster's brokers could not even be asked who leads.
var errNobody = fmt.Errorf("%w: no broker answers", cluster.ErrUnreachable)

// ask puts a question to the leaders, once, all of them at a time.
func (t *tail) ask(ctx context.Context, parts []int32, slot string, fresh bool, q question) map[int32]error {
	// A broker that does not answer may have been replaced: there is time to try again.
	ctx, cancel := context.WithTimeout(ctx, t.s.cfg.RequestTimeout/2)
	defer cancel()
	errs := make(map[int32]error, len(parts))
	leaders, err := t.leaders(ctx, fresh)
	if err != nil {
		for _, n := range parts {
			errs[n] = err
		}
		return errs
	}
	byBroker := map[int32][]int32{}
	for _, n := range parts {
		switch l := leaders[n]; {
		case l.Leader.Broker < 0:
			errs[n] = fmt.Errorf("%w: partition %d of %s has no leader", cluster.ErrUnavailable, n, t.topic)
		default:
			byBroker[l.Leader.Broker] = append(byBroker[l.Leader.Broker], n)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for broker, group := range byBroker {
		wg.Go(func() {
			own := make(map[int32]error, len(group))
			conn, err := t.conn(ctx, broker, slot)
			if err == nil {
				err = q(ctx, conn, group, own)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, n := range group {
				if errs[n] = own[n]; err != nil {
					errs[n] = err
				}
			}
		})
	}
	wg.Wait()
	return errs
}

// askUntil is ask, repeated until ctx ends for partitions that another broker may
// lead soon. A cluster of which no broker answers is given up earlier.
func (t *tail) askUntil(ctx context.Context, parts []int32, slot string, q question) error {
	var nobody patience
	for try := 0; ; try++ {
		errs := t.ask(ctx, parts, slot, try > 0, q)
		var left []int32
		var last error
		for _, n := range parts {
			switch err := errs[n]; {
			case err == nil:
			case !passing(err):
				return err
			default:
				left, last = append(left, n), err
			}
		}
		if len(left) == 0 {
			return nil
		}
		if err := t.ended(); err != nil {
			return err
		}
		if parts = left; nobody.over(last) || !sleep(ctx, awaited(try)) {
			return last
		}
	}
}

// passing reports errors that go by when leaders move or brokers come back.
func passing(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, cluster.ErrAuthentication) {
		return false
	}
	for _, p := range []error{cluster.ErrNotLeader, cluster.ErrLeaderEpoch, cluster.ErrUnreachable, cluster.ErrUnavailable,
		cluster.ErrUnknownOutcome, cluster.ErrTimeout, cluster.ErrUnknownTopic} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// leaders are who leads the partitions, by index. It ends the tail when the topic is
// not the one that was opened.
func (t *tail) leaders(ctx context.Context, fresh bool) ([]wire.PartitionMetadata, error) {
	meta, err := t.s.metadata(ctx, []string{t.topic}, fresh, t.s.cfg.DialTimeout/4)
	if err != nil {
		return nil, err
	}
	topic, ok := meta.Topics[t.topic]
	switch {
	case !ok:
		return nil, cluster.ErrUnknownTopic
	case topic.Err != nil:
		return nil, topic.Err
	case topic.ID != t.id:
		err = fmt.Errorf("%w: %s", cluster.ErrTopicReplaced, t.topic)
	case len(topic.Partitions) != len(t.all):
		err = fmt.Errorf("%w: %s has %d partitions, it had %d", cluster.ErrTopicReplaced, t.topic, len(topic.Partitions), len(t.all))
	}
	if err != nil {
		t.end(err)
		return nil, err
	}
	return topic.Partitions, nil
}

// metadata looks at the cluster. When no broker answers in time, it is unreachable.
func (s *Store) metadata(ctx context.Context, topics []string, fresh bool, within time.Duration) (*wire.Metadata, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	meta, err := s.client.Metadata(ctx, topics, fresh)
	if err != nil && passing(err) {
		err = fmt.Errorf("%w: %w", errNobody, err)
	}
	return meta, err
}

// conn is a connection to a broker. It does not wait long for one that could not be
// reached just now: leaders may have moved away from it.
func (t *tail) conn(ctx context.Context, broker int32, slot string) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.s.cfg.DialTimeout/4)
	defer cancel()
	return t.s.client.Conn(ctx, broker, slot)
}

// at names the topic of an error.
func at(topic string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("state topic %s: %w", topic, err)
}
