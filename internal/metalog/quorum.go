package metalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// logTopic is the name of the metadata log; it has one partition, 0.
const logTopic = "__cluster_metadata"

// ErrNotKRaft: the brokers know no quorum of controllers; the cluster is one of
// ZooKeeper's, or what answers is no Kafka.
var ErrNotKRaft = errors.New("the cluster has no KRaft quorum")

// ErrNoActive: no controller says that it leads the quorum now. Asking again
// helps once one has been elected.
var ErrNoActive = errors.New("no controller is active")

// QuorumConfig says how controllers are found and reached.
type QuorumConfig struct {
	// Controllers are addresses, host:port, of controller listeners. What the
	// quorum says of its members (DescribeQuorum v2) is added to them. Default:
	// asked of Brokers.
	Controllers []string
	// Wire is how to connect to controllers. Its timeouts bound how long a silent
	// controller is believed in. Default: both three seconds.
	Wire *wire.Config
	// Brokers gives a connection to a broker that can be asked for controllers.
	// Default: none; Controllers must be given.
	Brokers func(ctx context.Context) (*wire.Conn, error)
}

// Quorum finds the active controller. Safe for concurrent use; it keeps no
// connection.
type Quorum struct {
	cfg    QuorumConfig
	mu     sync.Mutex
	known  []wire.Addr
	newest int32 // the newest epoch that anybody claimed to lead
}

// NewQuorum connects to nothing yet. Addresses must be host:port.
func NewQuorum(cfg QuorumConfig) (*Quorum, error) {
	q := &Quorum{cfg: cfg, newest: -1}
	var w wire.Config
	if cfg.Wire != nil {
		w = *cfg.Wire
	}
	w.DialTimeout = cmp.Or(w.DialTimeout, 3*time.Second)
	w.RequestTimeout = cmp.Or(w.RequestTimeout, 3*time.Second)
	q.cfg.Wire = &w
	for _, s := range cfg.Controllers {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return nil, fmt.Errorf("controller %q: %w", s, err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("controller %q: %w", s, err)
		}
		q.known = append(q.known, wire.Addr{ID: -1, Host: host, Port: int32(n)})
	}
	return q, nil
}

// Active is a connection to the active controller, which whoever asked for it
// closes.
type Active struct {
	*wire.Conn
	ID, Epoch     int32
	HighWatermark int64   // of the metadata log
	Voters        []int32 // node ids of all controllers
}

// Active asks all controllers at once who is active, and gives a new connection
// to the first that says it is. One that lags behind (it was frozen, or cut off)
// is not believed. Errors: ErrNoActive, ErrNotKRaft, CLUSTER_AUTHORIZATION_FAILED
// as wire.Code(31), or why nobody could be reached.
func (q *Quorum) Active(ctx context.Context) (*Active, error) {
	addrs, err := q.addrs(ctx)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		found   *Active
		failed  []error
	)
	for _, addr := range addrs {
		running.Go(func() {
			a, err := q.ask(asking, addr)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = append(failed, fmt.Errorf("%v: %w", addr, err))
			case found == nil:
				found = a
				cancel()
			default:
				a.Close()
			}
		})
	}
	running.Wait()
	if found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("%w: %w", ErrNoActive, errors.Join(failed...))
}

// addrs are the controllers known, asked of a broker when there are none.
func (q *Quorum) addrs(ctx context.Context) ([]wire.Addr, error) {
	q.mu.Lock()
	known := slices.Clone(q.known)
	q.mu.Unlock()
	if len(known) > 0 {
		return known, nil
	}
	if q.cfg.Brokers == nil {
		return nil, errors.New("no controller is known")
	}
	conn, err := q.cfg.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	if conn.MaxVersion(int16(kmsg.DescribeQuorum)) < 0 {
		return nil, fmt.Errorf("%w: %v", ErrNotKRaft, conn.Addr())
	}
	if _, err := describe(ctx, conn, q); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.known) == 0 {
		return nil, fmt.Errorf("%w: broker %v does not tell the addresses of controllers: name them", ErrNoActive, conn.Addr())
	}
	return slices.Clone(q.known), nil
}

// ask asks one controller. Only an active one answers without an error code.
func (q *Quorum) ask(ctx context.Context, addr wire.Addr) (*Active, error) {
	conn, err := wire.Dial(ctx, addr, q.cfg.Wire)
	if err != nil {
		return nil, err
	}
	p, err := describe(ctx, conn, q)
	if err == nil {
		q.mu.Lock()
		if p.LeaderEpoch < q.newest {
			err = fmt.Errorf("says it leads epoch %d, but there was %d", p.LeaderEpoch, q.newest)
		}
		q.newest = max(q.newest, p.LeaderEpoch)
		q.mu.Unlock()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	a := &Active{Conn: conn, ID: p.LeaderID, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark}
	for _, v := range p.CurrentVoters {
		a.Voters = append(a.Voters, v.ReplicaID)
	}
	return a, nil
}

// describe asks for the state of the quorum, and remembers its members.
func describe(ctx context.Context, conn *wire.Conn, q *Quorum) (*kmsg.DescribeQuorumResponseTopicPartition, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = logTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.DescribeQuorumResponse)
	q.learn(resp.Nodes)
	if err := wire.CodeError(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("%w: DescribeQuorum answers for %d topics", cluster.ErrCorrupt, len(resp.Topics))
	}
	p := &resp.Topics[0].Partitions[0]
	return p, wire.CodeError(p.ErrorCode)
}

// learn adds the first listener of each member, which is the one that the
// cluster's own nodes use.
func (q *Quorum) learn(nodes []kmsg.DescribeQuorumResponseNode) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range nodes {
		if len(n.Listeners) == 0 {
			continue
		}
		l := n.Listeners[0]
		same := func(a wire.Addr) bool { return a.Host == l.Host && a.Port == int32(l.Port) }
		if !slices.ContainsFunc(q.known, same) {
			q.known = append(q.known, wire.Addr{ID: -1, Host: l.Host, Port: int32(l.Port)})
		}
	}
}
