package wire

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// Metadata is a look at the cluster. It is a snapshot shared with others: read
// only.
type Metadata struct {
	ClusterID    string
	ControllerID int32 // -1 when not known; with KRaft any broker, which forwards
	Brokers      map[int32]Addr
	Topics       map[string]TopicMetadata
}

// TopicMetadata is one topic. Err is a Code, for example UNKNOWN_TOPIC_OR_PARTITION.
type TopicMetadata struct {
	ID         cluster.TopicID // zero before Kafka 2.8
	Name       string
	Internal   bool
	Err        error
	Partitions []PartitionMetadata // index is the partition's number
}

// PartitionMetadata is one partition. Leader.Broker is -1 when nobody leads it;
// Leader.Epoch is -1 before Kafka 2.1.
type PartitionMetadata struct {
	Leader        cluster.Leader
	Replicas, ISR []int32
	Err           error
}

// view is what the client remembers of the cluster. Guarded by Client.mu.
type view struct {
	clusterID  string
	controller int32
	at         time.Time // of clusterID, controller and Client.brokers; zero when they are to be asked for
	topics     map[string]cached
}

type cached struct {
	topic TopicMetadata
	at    time.Time
}

func (v *cached) young() bool { return time.Since(v.at) < maxAge }

// look is one metadata request, for all who ask while another is in flight.
type look struct {
	all    bool
	topics map[string]struct{}
	done   chan struct{} // closed when result and err are set
	result *Metadata
	err    error
}

// Metadata looks at topics by name; an empty list looks at the brokers only, nil
// at every topic, which is never answered from memory. fresh asks the cluster,
// else answers up to five minutes old are given when nobody doubted them (Stale).
// One request is in flight at a time; those who ask meanwhile share the next one,
// so that an answer is never older than the question. Topics are not created by
// asking. A topic's own error is in its Err. Reading a topic list that includes
// names nobody knows costs a request each time.
func (c *Client) Metadata(ctx context.Context, topics []string, fresh bool) (*Metadata, error) {
	c.mu.Lock()
	if topics != nil && !fresh {
		if m := c.remembered(topics); m != nil {
			c.mu.Unlock()
			return m, nil
		}
	}
	if ctx.Err() != nil { // nobody would wait for it
		c.mu.Unlock()
		return nil, &Error{Op: "Metadata", Addr: Addr{ID: -1}, Cause: Canceled, Err: ctx.Err()}
	}
	l := c.join(topics)
	c.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, &Error{Op: "Metadata", Addr: Addr{ID: -1}, Cause: Canceled, Err: ctx.Err()}
	}
	if l.err != nil || topics == nil {
		return l.result, l.err
	}
	return l.result.only(topics), nil
}

// only is the part about the topics given.
func (m *Metadata) only(topics []string) *Metadata {
	out := *m
	out.Topics = make(map[string]TopicMetadata, len(topics))
	for _, name := range topics {
		if t, ok := m.Topics[name]; ok {
			out.Topics[name] = t
		}
	}
	return &out
}

// remembered answers from memory, nil when it cannot. Needs mu.
func (c *Client) remembered(topics []string) *Metadata {
	if c.view.at.IsZero() || time.Since(c.view.at) >= maxAge {
		return nil
	}
	m := c.snapshot(len(topics))
	for _, name := range topics {
		t, ok := c.view.topics[name]
		if !ok || !t.young() {
			return nil
		}
		m.Topics[name] = t.topic
	}
	return m
}

// snapshot is the cluster without topics. Needs mu.
func (c *Client) snapshot(topics int) *Metadata {
	return &Metadata{ClusterID: c.view.clusterID, ControllerID: c.view.controller,
		Brokers: c.brokers, Topics: make(map[string]TopicMetadata, topics)}
}

func (c *Client) cachedTopic(name string) (TopicMetadata, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.view.topics[name]
	return t.topic, ok && t.young()
}

// join adds a question to the look that starts next, starting it when none is in
// flight. Needs mu.
func (c *Client) join(topics []string) *look {
	l := c.next
	if l == nil {
		l = &look{topics: make(map[string]struct{}), done: make(chan struct{})}
		c.next = l
	}
	l.all = l.all || topics == nil
	for _, name := range topics {
		l.topics[name] = struct{}{}
	}
	if c.current == nil {
		c.advance()
	}
	return l
}

// advance starts the next look, if somebody asks. Needs mu.
func (c *Client) advance() {
	c.current, c.next = c.next, nil
	if l := c.current; l != nil {
		life := c.living()
		life.running.Go(func() { c.look(life, l) })
	}
}

func (c *Client) look(life context.Context, l *look) {
	resp, err := c.askMetadata(life, l)
	c.mu.Lock()
	switch {
	case life.Err() != nil: // not the askers' contexts: they must not take it for theirs
		l.err = &Error{Op: "Metadata", Addr: Addr{ID: -1}, Cause: Local, Err: net.ErrClosed}
	case err != nil:
		l.err = err
	default:
		l.result = c.remember(resp, l)
	}
	c.advance()
	c.mu.Unlock()
	close(l.done)
}

// lookTries: a connection that turns out to be dead costs one try.
const lookTries = 3

func (c *Client) askMetadata(life context.Context, l *look) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(life, c.cfg.RequestTimeout)
	defer cancel()
	var err error
	for range lookTries {
		var conn *Conn
		if conn, err = c.Any(ctx); err != nil {
			return nil, err
		}
		var resp kmsg.Response
		if resp, err = conn.Do(ctx, l.request()); err != nil {
			if ctx.Err() != nil || conn.alive() {
				return nil, err
			}
			continue
		}
		m := resp.(*kmsg.MetadataResponse)
		if err = CodeError(m.ErrorCode); err != nil {
			return nil, err
		}
		return m, nil
	}
	return nil, err
}

func (l *look) request() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if l.all {
		return req // no list means all
	}
	req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(l.topics))
	for _, name := range slices.Sorted(maps.Keys(l.topics)) {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

// remember takes an answer into the client's view and gives it as asked. Maps
// given out are never changed, so brokers are replaced as a whole. Needs mu.
func (c *Client) remember(resp *kmsg.MetadataResponse, l *look) *Metadata {
	now := time.Now()
	brokers := make(map[int32]Addr, len(resp.Brokers))
	for _, b := range resp.Brokers {
		brokers[b.NodeID] = Addr{ID: b.NodeID, Host: b.Host, Port: b.Port}
	}
	c.brokers = brokers
	c.view.at, c.view.controller, c.view.clusterID = now, resp.ControllerID, ""
	if resp.ClusterID != nil {
		c.view.clusterID = *resp.ClusterID
	}
	if c.view.topics == nil {
		c.view.topics = make(map[string]cached)
	}
	if l.all {
		clear(c.view.topics) // what is not in the answer does not exist
	}
	m := c.snapshot(len(resp.Topics))
	for i := range resp.Topics {
		t, ok := readTopic(&resp.Topics[i])
		if !ok {
			continue
		}
		c.keepNewer(&t)
		m.Topics[t.Name] = t
		if t.Err != nil {
			delete(c.view.topics, t.Name) // an error is not remembered
		} else {
			c.view.topics[t.Name] = cached{t, now}
		}
	}
	return m
}

// keepNewer puts back leaders that were learnt with a later epoch than the
// answering broker knows (KIP-320). Only for the same topic, so not where
// clusters are too old to have topic ids. Needs mu.
func (c *Client) keepNewer(t *TopicMetadata) {
	old, ok := c.view.topics[t.Name]
	if !ok || t.ID.IsZero() || old.topic.ID != t.ID {
		return
	}
	for i := range t.Partitions {
		if i < len(old.topic.Partitions) && old.topic.Partitions[i].Leader.Epoch > t.Partitions[i].Leader.Epoch {
			t.Partitions[i].Leader = old.topic.Partitions[i].Leader
		}
	}
}

func readTopic(t *kmsg.MetadataResponseTopic) (TopicMetadata, bool) {
	if t.Topic == nil {
		return TopicMetadata{}, false
	}
	out := TopicMetadata{ID: t.TopicID, Name: *t.Topic, Internal: t.IsInternal, Err: CodeError(t.ErrorCode)}
	count := 0
	for i := range t.Partitions {
		count = max(count, int(t.Partitions[i].Partition)+1)
	}
	if count > 0 && count <= 2*len(t.Partitions)+1000 { // a wild number must not cost memory
		out.Partitions = make([]PartitionMetadata, count)
	}
	for i := range out.Partitions { // numbers the answer leaves out
		out.Partitions[i] = PartitionMetadata{Leader: cluster.Leader{Broker: -1, Epoch: cluster.NoEpoch}, Err: Code(3)}
	}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if p.Partition < 0 || int(p.Partition) >= len(out.Partitions) {
			continue
		}
		out.Partitions[p.Partition] = PartitionMetadata{
			Leader:   cluster.Leader{Broker: p.Leader, Epoch: p.LeaderEpoch},
			Replicas: p.Replicas, ISR: p.ISR, Err: CodeError(p.ErrorCode),
		}
	}
	return out, true
}

// Learn takes a leader that a fetch or produce answer named, unless a later epoch
// is known already.
func (c *Client) Learn(p cluster.Partition, l cluster.Leader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.view.topics[p.Topic]
	if !ok || p.Partition < 0 || int(p.Partition) >= len(t.topic.Partitions) ||
		l.Epoch < t.topic.Partitions[p.Partition].Leader.Epoch {
		return
	}
	t.topic.Partitions = slices.Clone(t.topic.Partitions) // the old ones were given out
	t.topic.Partitions[p.Partition].Leader = l
	t.topic.Partitions[p.Partition].Err = nil
	c.view.topics[p.Topic] = t
}

// Stale says that an answer contradicted what is remembered of the topics, or,
// without names, of brokers and controller: the next look is fresh.
func (c *Client) Stale(topics ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(topics) == 0 {
		c.view.at = time.Time{}
	}
	for _, name := range topics {
		// Kept, but old: its epochs still tell newer leaders from older ones.
		if t, ok := c.view.topics[name]; ok {
			t.at = time.Time{}
			c.view.topics[name] = t
		}
	}
}
