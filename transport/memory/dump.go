package memory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// State is how a partition stands on its brokers.
type State struct {
	Leader     cluster.Leader
	TopicID    cluster.TopicID
	LastStable int64 // -1 without a leader
	Mirrored   bool  // read-only for clients, where the destination can
	Replicas   []Replica
}

// Replica is a partition on one broker.
type Replica struct {
	Broker        int32
	Up            bool
	InSync        bool
	LogStart      int64
	LogEnd        int64
	HighWatermark int64 // as this replica knows it
	Owes          int64 // offset it has to truncate to when it comes back; -1: nothing
}

// State describes a partition; the replicas are in the order of their assignment.
func (c *Cluster) State(p cluster.Partition) (State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, err := c.find(p)
	if err != nil {
		return State{}, err
	}
	s := State{Leader: part.leads(), TopicID: part.topic.id, LastStable: -1, Mirrored: part.mirrored()}
	if part.leader >= 0 {
		s.LastStable = part.stable()
	}
	for i := range part.replicas {
		r := &part.replicas[i]
		s.Replicas = append(s.Replicas, Replica{
			Broker: r.broker, Up: c.up(r.broker), InSync: r.inSync, LogStart: r.log.start, LogEnd: r.log.end, HighWatermark: r.high, Owes: r.cut,
		})
	}
	return s, nil
}

// replicaOf is a broker's replica; broker -1 means the leader's.
func (c *Cluster) replicaOf(p cluster.Partition, broker int32) (*partition, *replica, error) {
	part, err := c.find(p)
	if err != nil {
		return nil, nil, err
	}
	i := part.leader
	if broker >= 0 {
		i = part.at(broker)
	}
	if i < 0 {
		return nil, nil, fmt.Errorf("%v: %w: no replica", p, cluster.ErrUnavailable)
	}
	return part, &part.replicas[i], nil
}

// Log is a copy of a partition's whole log as the leader has it, beyond the high
// watermark too; nil when there is none.
func (c *Cluster) Log(p cluster.Partition) []byte { return c.LogOf(p, -1) }

// LogOf is Log of one broker's replica, also of a broker that is down.
func (c *Cluster) LogOf(p cluster.Partition, broker int32) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, r, err := c.replicaOf(p, broker)
	if err != nil {
		return nil
	}
	var b []byte
	for _, s := range r.log.batches {
		b = append(b, s.bytes...)
	}
	return b
}

// Records are what a consumer reads from the log start to the high watermark, or with
// committed to the last stable offset, without what was aborted.
func (c *Cluster) Records(p cluster.Partition, committed bool) ([]Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, leader, err := c.replicaOf(p, -1)
	if err != nil {
		return nil, err
	}
	limit, aborted := leader.high, []Aborted(nil)
	if committed {
		limit, aborted = part.stable(), part.producers().aborted
	}
	var out []Record
	for _, s := range leader.log.batches {
		h := batch.Header(s.bytes)
		if h.Control() || s.next > limit || isAborted(h, aborted) {
			continue
		}
		err := batch.Decode(h, func(r batch.Record) error {
			if !r.Phantom && r.Offset >= leader.log.start {
				out = append(out, readable(owned(r)))
			}
			return nil
		})
		if err != nil {
			return out, fmt.Errorf("%v: %w", p, err)
		}
	}
	return out, nil
}

func isAborted(h batch.Header, aborted []Aborted) bool {
	for _, a := range aborted {
		if h.Transactional() && a.ProducerID == h.ProducerID() && h.Base() >= a.First && h.Base() < a.Marker {
			return true
		}
	}
	return false
}

func readable(r batch.Record) Record {
	out := Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{Key: string(h.Key), Value: h.Value})
	}
	return out
}

// Dump shows the leader's log in one stable form, for golden files: a line with the
// ends, then a line for each batch: its range, its epoch, its producer (id, epoch,
// first sequence), what is special about it, and its records as offset:key=value.
// Timestamps are left out.
func (c *Cluster) Dump(p cluster.Partition) string { return c.DumpOf(p, -1) }

// DumpOf is Dump of one broker's replica.
func (c *Cluster) DumpOf(p cluster.Partition, broker int32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, r, err := c.replicaOf(p, broker)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%d,%d) high watermark %d\n", r.log.start, r.log.end, r.high)
	for _, s := range r.log.batches {
		dump(&b, batch.Header(s.bytes))
	}
	return b.String()
}

func dump(b *strings.Builder, h batch.Header) {
	fmt.Fprintf(b, "%d-%d epoch %d", h.Base(), h.Next(), h.LeaderEpoch())
	if h.ProducerID() >= 0 {
		fmt.Fprintf(b, " producer %d/%d/%d", h.ProducerID(), h.ProducerEpoch(), h.BaseSequence())
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{h.Codec().String(), h.Codec() != batch.None}, {"transactional", h.Transactional()}, {"log-append-time", h.LogAppendTime()},
		{"delete-horizon", h.DeleteHorizon()}, {"abort", h.Control() && markerOf(h) == markAbort},
		{"commit", h.Control() && markerOf(h) == markCommit},
	} {
		if f.set {
			b.WriteString(" " + f.name)
		}
	}
	b.WriteString(":")
	if !h.Control() {
		err := batch.Decode(h, func(r batch.Record) error {
			if r.Phantom {
				b.WriteString(" phantom")
				return nil
			}
			fmt.Fprintf(b, " %d:%s=%s", r.Offset, text(r.Key), text(r.Value))
			for _, header := range r.Headers {
				fmt.Fprintf(b, "{%s=%s}", header.Key, text(header.Value))
			}
			return nil
		})
		if err != nil {
			fmt.Fprintf(b, " %v", err)
		}
	}
	b.WriteString("\n")
}

// text is a key or value; what is not plain is quoted.
func text(b []byte) string {
	if b == nil {
		return "null"
	}
	s := string(b)
	if s == "" || s == "null" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"={}:`, r) }) {
		return strconv.Quote(s)
	}
	return s
}
