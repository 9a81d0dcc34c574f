package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Record is one record as clients write and read it.
type Record struct {
	Offset    int64  // of what was read; not looked at in what is written
	Timestamp int64  // milliseconds; 0 in what is written: now
	Key       []byte // nil is null
	Value     []byte // nil is null
	Headers   []Header
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil is null
}

// Values are records without keys, one for each value.
func Values(values ...string) []Record {
	rs := make([]Record, len(values))
	for i, v := range values {
		rs[i].Value = []byte(v)
	}
	return rs
}

// Produce writes one batch as a producer without an id does, and returns its first
// offset. A mirror topic refuses it (ErrReadOnly) where the destination can. A topic
// with message.timestamp.type=LogAppendTime stamps the batch.
func (c *Cluster) Produce(p cluster.Partition, records ...Record) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, leader, err := c.writable(p)
	if err != nil {
		return -1, err
	}
	return c.write(part, leader, batch.Spec{Records: encodable(records)}), nil
}

// writable is a partition that a client may write to now.
func (c *Cluster) writable(p cluster.Partition) (*partition, *replica, error) {
	part, leader, err := c.leading(p)
	if err == nil {
		err = part.topic.readOnly(c)
	}
	return part, leader, err
}

// write appends a batch of a client at the log end.
func (c *Cluster) write(p *partition, leader *replica, s batch.Spec) int64 {
	s.Base, s.LeaderEpoch = leader.log.end, p.epoch
	if p.topic.config("message.timestamp.type") == "LogAppendTime" {
		s.Attributes |= batch.AttrLogAppendTime
		s.Timestamp = time.Now().UnixMilli()
	}
	c.place(p, leader, batch.Encode(s))
	return s.Base
}

// place appends what is not the mirror's.
func (c *Cluster) place(p *partition, leader *replica, b []byte) {
	s := storedOf(b)
	if p.mirrored() && p.stretch.foreign < 0 {
		p.stretch.foreign = leader.log.end
	}
	if !batch.Header(b).Control() {
		p.wrote("", s.base)
	}
	leader.log.append(s)
	c.grown(p)
}

func encodable(records []Record) []batch.Record {
	out := make([]batch.Record, len(records))
	for i, r := range records {
		out[i] = batch.Record{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
		if r.Timestamp == 0 {
			out[i].Timestamp = time.Now().UnixMilli()
		}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, batch.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
	}
	return out
}

// ProduceBatches writes batches (format 2, one in each slice) as a producer does: the broker gives
// them their offsets and its epoch, all else stays as it is. The bytes are copied. It
// returns the first offset.
func (c *Cluster) ProduceBatches(p cluster.Partition, batches ...[]byte) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, leader, err := c.writable(p)
	if err != nil {
		return -1, err
	}
	base := leader.log.end
	return base, c.placeAll(part, leader, batches, func(batch.Header) int64 { return leader.log.end })
}

// Inject puts batches (format 2, one in each slice) into the log at the offsets they name, the log
// end at least: what lies between is a hole, as compaction and transactions leave
// them. They get the leader's epoch; all else stays. The bytes are copied.
func (c *Cluster) Inject(p cluster.Partition, batches ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, leader, err := c.writable(p)
	if err != nil {
		return err
	}
	return c.placeAll(part, leader, batches, batch.Header.Base)
}

func (c *Cluster) placeAll(p *partition, leader *replica, batches [][]byte, base func(batch.Header) int64) error {
	for _, b := range batches {
		h := batch.Header(slices.Clone(b))
		if err := h.Check(); err != nil {
			return fmt.Errorf("%v: %w", p.id, err)
		}
		if len(h) != h.Length() {
			return fmt.Errorf("%v: %w: %d bytes behind the batch", p.id, cluster.ErrRefused, len(h)-h.Length())
		}
		at := base(h)
		if at < leader.log.end {
			return &cluster.OffsetError{
				Partition: p.id, Span: cluster.Span{From: h.Base(), To: h.Next()}, Err: cluster.ErrRefused,
				Detail: fmt.Sprintf("the log ends at %d", leader.log.end),
			}
		}
		h.Patch(batch.Patch{Base: at, LeaderEpoch: p.epoch, ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(), BaseSequence: h.BaseSequence()})
		c.place(p, leader, h)
	}
	return nil
}

// DeleteRecords moves the log start up as a client does; -1 means the high watermark.
// A mirror topic refuses it.
func (c *Cluster) DeleteRecords(p cluster.Partition, before int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, leader, err := c.writable(p)
	if err != nil {
		return err
	}
	if before < 0 {
		before = leader.high
	}
	if before > leader.high {
		return &cluster.OffsetError{
			Partition: p, Span: cluster.Span{From: before, To: before}, Err: cluster.ErrOutOfRange,
			Detail: fmt.Sprintf("the high watermark is %d", leader.high),
		}
	}
	c.trim(part, before)
	return nil
}

// Compact removes the records that are not named from all batches but the last, on
// every replica, as the log cleaner does: offsets stay, batches keep their range,
// and those that are empty go. Markers of transactions stay.
func (c *Cluster) Compact(p cluster.Partition, keep ...int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, err := c.find(p)
	if err != nil {
		return err
	}
	for i := range part.replicas {
		if err := part.replicas[i].log.compact(keep); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	part.known = producers{}
	c.changed()
	return nil
}

func (l *log) compact(keep []int64) error {
	var kept []stored
	for i, s := range l.batches {
		h := batch.Header(s.bytes)
		if i == len(l.batches)-1 || h.Control() {
			kept = append(kept, s)
			continue
		}
		b, err := thinned(h, keep)
		if err != nil {
			return err
		}
		if b != nil {
			kept = append(kept, storedOf(b))
		}
	}
	l.batches = kept
	return nil
}

// thinned is the batch with the named records only; nil when none is left.
func thinned(h batch.Header, keep []int64) ([]byte, error) {
	var rs []batch.Record
	err := batch.Decode(h, func(r batch.Record) error {
		if slices.Contains(keep, r.Offset) {
			rs = append(rs, owned(r))
		}
		return nil
	})
	if err != nil || len(rs) == 0 {
		return nil, err
	}
	if len(rs) == int(h.Count()) {
		return h, nil
	}
	s := batch.Spec{
		Base: h.Base(), LeaderEpoch: h.LeaderEpoch(), Codec: h.Codec(), Attributes: h.Attributes(), Records: rs,
		Next: h.Next(), Timestamp: h.MaxTimestamp(),
	}
	if h.DeleteHorizon() {
		s.Timestamp = h.BaseTimestamp()
	}
	if h.ProducerID() >= 0 {
		s.Producer = &batch.Producer{ID: h.ProducerID(), Epoch: h.ProducerEpoch(), Sequence: h.BaseSequence()}
	}
	return batch.Encode(s), nil
}

// owned is a record with memory of its own.
func owned(r batch.Record) batch.Record {
	r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i] = batch.RecordHeader{Key: slices.Clone(r.Headers[i].Key), Value: slices.Clone(r.Headers[i].Value)}
	}
	return r
}
