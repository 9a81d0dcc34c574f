package acceptance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// blow is one of the events of a storm. All of it is drawn before the storm begins.
type blow struct {
	kind  int  // of blows
	node  int  // of the cluster that is hit, where not its controller is
	other bool // not the worker that leads is hit, where there are several
	pause time.Duration
}

func (b blow) String() string {
	which := "leading"
	if b.other {
		which = "other"
	}
	return fmt.Sprintf("%s (node %d, %s worker, %v)", blows[b.kind].name, b.node, which, b.pause)
}

// A destination's session lasts 3 s here, a source's 4 s.
// Where the limit is above 0 it is five times what a reader may have to wait.
var blows = []struct {
	name     string
	from, to time.Duration // of the pause
	limit    time.Duration
	do       func(s *storm, b blow)
}{
	{"the worker is killed and comes back", 0, 500 * time.Millisecond, 5 * time.Second, (*storm).killWorker},
	{"the worker is frozen", 500 * time.Millisecond, 2 * time.Second, 5 * time.Second, (*storm).freezeWorker},
	{"the worker is frozen for longer than its session", 4 * time.Second, 6 * time.Second, 5 * time.Second, (*storm).freezeWorker},
	{"the destination's controller is killed", 0, 2 * time.Second, 0, func(s *storm, b blow) { kill(s.dst, s.controller(s.dst), b.pause) }},
	{"source leaders move", 0, 0, 0, (*storm).moveLeaders},
	{"a source broker is killed", 0, 4 * time.Second, 0, func(s *storm, b blow) { kill(s.src, b.node, b.pause) }},
	{"the source elects a leader that lacks records", 300 * time.Millisecond, time.Second, 0, (*storm).unclean},
	{"the worker is away for longer than its session", 4 * time.Second, 6 * time.Second, 5 * time.Second, (*storm).killWorker},
	{"the worker is killed while a destination broker is away", 500 * time.Millisecond, 3 * time.Second, 0, (*storm).killBoth},
	{"a destination broker is killed", 0, 4 * time.Second, 0, func(s *storm, b blow) { kill(s.dst, b.node, b.pause) }},
	{"a destination broker is restarted in order", 0, 0, 0, func(s *storm, b blow) { s.dst.Restart(b.node) }},
	{"a destination broker is frozen", time.Second, 6 * time.Second, 0, func(s *storm, b blow) { pause(s.dst, b.node, b.pause) }},
	{"a source broker is restarted in order", 0, 0, 0, func(s *storm, b blow) { s.src.Restart(b.node) }},
	{"a source broker is frozen", time.Second, 6 * time.Second, 0, func(s *storm, b blow) { pause(s.src, b.node, b.pause) }},
	{"the source's controller is killed", 0, 2 * time.Second, 0, func(s *storm, b blow) { kill(s.src, s.controller(s.src), b.pause) }},
}

// drawn are n events, every kind once before one comes again. The ordinary run takes the
// first kinds.
func drawn(seed uint64, n int) (out []blow) {
	r := rand.New(rand.NewPCG(seed, 0))
	for len(out) < n {
		for _, kind := range r.Perm(min(len(blows), n)) {
			k := blows[kind]
			b := blow{kind: kind, node: 1 + r.IntN(3), other: r.IntN(3) == 0, pause: k.from}
			if k.to > k.from {
				b.pause += time.Duration(r.Int64N(int64(k.to - k.from))).Round(time.Millisecond)
			}
			out = append(out, b)
		}
	}
	return out[:n]
}

// worker is the one that is hit.
func (s *storm) worker(b blow) (hit *mirroring) {
	cl := s.dst.Client(s.t, nimble...)
	kafkatest.Eventually(s.t, 30*time.Second, func(ctx context.Context) error {
		now, err := leadersNow(ctx, cl, s.kept)
		if err != nil {
			return err
		}
		for _, w := range s.workers {
			if leads := w.id() == now[0]; len(s.workers) == 1 || leads != b.other {
				hit = w
				return nil
			}
		}
		return fmt.Errorf("leaders of %s are %v", s.kept, now)
	})
	return hit
}

func (s *storm) killWorker(b blow) {
	w := s.worker(b)
	w.process.Kill()
	wait(s.t, b.pause)
	w.start()
}

func (s *storm) freezeWorker(b blow) {
	w := s.worker(b)
	w.process.Stop()
	wait(s.t, b.pause)
	w.process.Cont()
}

func (s *storm) killBoth(b blow) {
	s.dst.Kill(b.node)
	s.killWorker(b)
	s.dst.Restart(b.node)
}

func kill(c *kafkatest.Cluster, node int, away time.Duration) {
	c.Kill(node)
	<-time.After(away)
	c.Restart(node)
}

func pause(c *kafkatest.Cluster, node int, away time.Duration) {
	c.Pause(node)
	<-time.After(away)
	c.Continue(node)
}

// unclean has that replica of a topic lead which lacks the newest records: it is down
// while they are written, and the one that has them then.
func (s *storm) unclean(b blow) {
	cl := s.src.Client(s.t, nimble...)
	holds := s.leader(cl, s.lossy)
	lacks := 3 - holds // it has replicas on 1 and 2
	s.src.Stop(lacks)
	before := s.src.Ends(s.t.Context(), s.t, s.lossy)[0]
	wait(s.t, b.pause)
	moving(s.t, s.dst, s.lossy, s.dst.Ends(s.t.Context(), s.t, s.lossy))
	s.src.Kill(holds)
	s.src.Restart(lacks)
	led(s.t, s.src, s.lossy, lacks)
	s.t.Logf("broker %d leads, which had %s up to about %d", lacks, s.lossy, before)
	s.src.Restart(holds)
}

// leader of a topic's partition 0, once there is one.
func (s *storm) leader(cl *kgo.Client, topic string) (leader int) {
	kafkatest.Eventually(s.t, 30*time.Second, func(ctx context.Context) error {
		now, err := leadersNow(ctx, cl, topic)
		if err == nil && now[0] < 0 {
			err = fmt.Errorf("%s has no leader", topic)
		}
		if err == nil {
			leader = now[0]
		}
		return err
	})
	return leader
}

// controller is the node that leads a cluster's quorum, or that ZooKeeper has made one.
func (s *storm) controller(c *kafkatest.Cluster) (leader int) {
	cl := c.Client(s.t, nimble...)
	kafkatest.Eventually(s.t, 30*time.Second, func(ctx context.Context) error {
		if c.Version() < "3" {
			m, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
			if err == nil && m.ControllerID < 0 {
				err = errors.New("there is no controller")
			}
			if err == nil {
				leader = int(m.ControllerID)
			}
			return err
		}
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic = "__cluster_metadata"
		topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, cl)
		switch {
		case err != nil:
			return err
		case resp.ErrorCode != 0 || len(resp.Topics) == 0:
			return fmt.Errorf("the quorum is not told: %w", kerr.ErrorForCode(resp.ErrorCode))
		}
		leader = int(resp.Topics[0].Partitions[0].LeaderID)
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
	return leader
}

// moveLeaders has each partition of the source led by the next of its replicas.
func (s *storm) moveLeaders(blow) {
	cl := s.src.Client(s.t, nimble...)
	for _, topic := range []string{s.kept, s.committed} {
		kafkatest.Eventually(s.t, 30*time.Second, func(ctx context.Context) error {
			m, err := metadataOf(ctx, cl, topic)
			if err != nil {
				return err
			}
			return rotate(ctx, cl, m)
		})
	}
}

func rotate(ctx context.Context, cl *kgo.Client, m kmsg.MetadataResponseTopic) error {
	move := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	move.Topic = *m.Topic
	elect := kmsg.NewElectLeadersRequestTopic()
	elect.Topic = *m.Topic
	for _, p := range m.Partitions {
		if p.Leader < 0 || len(p.ISR) < 2 {
			return fmt.Errorf("%s-%d has leader %d, in sync %v", *m.Topic, p.Partition, p.Leader, p.ISR)
		}
		part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		part.Partition = p.Partition
		for i := range p.Replicas { // as it was, from the one behind the leader on
			part.Replicas = append(part.Replicas, p.Replicas[(slices.Index(p.Replicas, p.Leader)+1+i)%len(p.Replicas)])
		}
		move.Partitions = append(move.Partitions, part)
		elect.Partitions = append(elect.Partitions, p.Partition)
	}
	assign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	assign.TimeoutMillis, assign.Topics = 10_000, append(assign.Topics, move)
	moved, err := assign.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(moved.ErrorCode)
	}
	if err != nil {
		return err
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis, req.Topics = 10_000, append(req.Topics, elect)
	elected, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range elected.Topics {
		for _, p := range t.Partitions {
			if bad := kerr.ErrorForCode(p.ErrorCode); !errors.Is(bad, kerr.ElectionNotNeeded) {
				err = errors.Join(err, bad)
			}
		}
	}
	return err
}
