package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Reader reads raw batches of a cluster.
type Reader interface {
	Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error)
	LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error)
}

// Shape is something that a log can hold.
type Shape string

// The shapes that a census counts. Codecs count under their names as well.
const (
	HoleAtHead       Shape = "batch with a hole at its head"
	HoleInMiddle     Shape = "batch with a hole in its middle"
	HoleAtTail       Shape = "batch with a hole at its tail"
	HoleCompressed   Shape = "compressed batch with a hole"
	HoleStamped      Shape = "batch with log append time and a hole"
	BatchesGone      Shape = "hole where whole batches were"
	Empty            Shape = "batch without records"
	Committed        Shape = "commit marker"
	Aborted          Shape = "abort marker"
	MarkersInRow     Shape = "markers in a row"
	AbortedRecords   Shape = "records of an aborted transaction"
	Interleaved      Shape = "two transactions open at once"
	Open             Shape = "transaction without an end"
	Plain            Shape = "batch of a producer without id"
	Idempotent       Shape = "batch of an idempotent producer"
	CreateTime       Shape = "batch with create time"
	LogAppendTime    Shape = "batch with log append time"
	DeleteHorizon    Shape = "batch with a delete horizon"
	StartInsideBatch Shape = "log start inside a batch"
	StartsLater      Shape = "log start above 0"
	Format0          Shape = "message of format 0"
	Format1          Shape = "message of format 1"
	OldCompressed    Shape = "compressed message of an old format"
	NullKey          Shape = "null key"
	EmptyKey         Shape = "empty key"
	BinaryKey        Shape = "key that is no text"
	Tombstone        Shape = "null value"
	EmptyValue       Shape = "empty value"
	LargeValue       Shape = "value of 1 MB and more"
	WithHeaders      Shape = "record with headers"
	NoTimestamp      Shape = "timestamp -1"
	ZeroTimestamp    Shape = "timestamp 0"
	FutureTimestamp  Shape = "timestamp of the future"
	FarApart         Shape = "timestamps more than 24.8 days apart in one batch"
)

// Census counts what a log holds.
type Census map[Shape]int

// Missing are those of the wanted shapes that are not there.
func (c Census) Missing(wanted []Shape) (out []Shape) {
	for _, s := range wanted {
		if c[s] == 0 {
			out = append(out, s)
		}
	}
	return out
}

// Add takes another census to this one.
func (c Census) Add(o Census) {
	for s, n := range o {
		c[s] += n
	}
}

// String is in the order of the names.
func (c Census) String() string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(c)) {
		out = append(out, fmt.Sprintf("%s: %d", s, c[s]))
	}
	return strings.Join(out, ", ")
}

// Count makes the census of a partition from its raw batches.
func Count(ctx context.Context, r Reader, p cluster.Partition) (Census, error) {
	offsets, err := r.LogOffsets(ctx, p)
	if err != nil {
		return nil, err
	}
	c := &counter{census: Census{}, next: offsets.LogStart, start: offsets.LogStart, open: map[int64]int{}, now: time.Now().UnixMilli()}
	if offsets.LogStart > 0 {
		c.census[StartsLater]++
	}
	for c.next < offsets.HighWatermark {
		raw, err := r.Read(ctx, p, c.next, 4<<20)
		if err != nil {
			return nil, err
		}
		before := c.next
		w := batch.Walk(raw)
		for w.Next() && err == nil {
			err = c.batch(w.Header())
		}
		if err == nil {
			err = w.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%v offset %d: %w", p, c.next, err)
		}
		if c.next == before {
			break // compaction took the end of the log
		}
	}
	if len(c.open) > 0 {
		c.census[Open]++
	}
	return c.census, nil
}

type counter struct {
	census      Census
	start, next int64
	control     bool          // the batch before was a marker
	open        map[int64]int // records of each open transaction, by producer
	now         int64
}

func (c *counter) batch(h batch.Header) error {
	if h.Magic() < 2 {
		return c.old(h)
	}
	if h.Next() <= c.next {
		return nil // what was read before comes again with the batch that holds the offset
	}
	switch {
	case h.Base() < c.start:
		c.census[StartInsideBatch]++
	case h.Base() > c.next:
		c.census[BatchesGone]++
	}
	c.next = h.Next()
	c.census[Shape(h.Codec().String())]++
	if h.Control() {
		return c.marker(h)
	}
	c.control = false
	c.kind(h)
	if h.Transactional() {
		c.open[h.ProducerID()] += int(h.Count())
		if len(c.open) > 1 {
			c.census[Interleaved]++
		}
	}
	return c.records(h)
}

// kind counts what the header says.
func (c *counter) kind(h batch.Header) {
	switch {
	case h.ProducerID() < 0:
		c.census[Plain]++
	case !h.Transactional():
		c.census[Idempotent]++
	}
	if h.LogAppendTime() {
		c.census[LogAppendTime]++
	} else {
		c.census[CreateTime]++
	}
	if h.DeleteHorizon() {
		c.census[DeleteHorizon]++
	}
	if h.Count() == 0 {
		c.census[Empty]++
	}
}

func (c *counter) marker(h batch.Header) error {
	if c.control {
		c.census[MarkersInRow]++
	}
	c.control = true
	return batch.Decode(h, func(r batch.Record) error {
		if len(r.Key) == 4 && r.Key[3] == 1 {
			c.census[Committed]++
		} else {
			c.census[Aborted]++
			c.census[AbortedRecords] += c.open[h.ProducerID()]
		}
		delete(c.open, h.ProducerID())
		return nil
	})
}

// old counts a message of an old format by its entry alone.
func (c *counter) old(h batch.Header) error {
	if h.Base() < c.next {
		return nil
	}
	c.next, c.control = h.Base()+1, false
	c.census[map[int8]Shape{0: Format0, 1: Format1}[h.Magic()]]++
	attributes := h[17]
	if attributes&7 != 0 {
		c.census[OldCompressed]++
	}
	if h.Magic() == 1 && attributes&8 != 0 {
		c.census[LogAppendTime]++
	}
	return nil
}

// records counts what is in a batch.
func (c *counter) records(h batch.Header) error {
	holes := map[Shape]bool{}
	at, least, most := h.Base(), int64(0), int64(0)
	err := batch.Decode(h, func(r batch.Record) error {
		switch {
		case r.Offset > at && at == h.Base():
			holes[HoleAtHead] = true
		case r.Offset > at:
			holes[HoleInMiddle] = true
		}
		if at == h.Base() {
			least, most = r.Timestamp, r.Timestamp
		}
		least, most = min(least, r.Timestamp), max(most, r.Timestamp)
		at = r.Offset + 1
		c.record(r)
		return nil
	})
	if at < h.Next() && h.Count() > 0 {
		holes[HoleAtTail] = true
	}
	for s := range holes {
		c.census[s]++
	}
	if len(holes) > 0 && h.Codec() != batch.None {
		c.census[HoleCompressed]++
	}
	if len(holes) > 0 && h.LogAppendTime() {
		c.census[HoleStamped]++
	}
	if most-least > 1<<31 {
		c.census[FarApart]++
	}
	return err
}

func (c *counter) record(r batch.Record) {
	for s, is := range map[Shape]bool{
		NullKey: r.Key == nil, EmptyKey: r.Key != nil && len(r.Key) == 0, BinaryKey: len(r.Key) > 0 && r.Key[0] >= 0x80,
		Tombstone: r.Value == nil, EmptyValue: r.Value != nil && len(r.Value) == 0, LargeValue: len(r.Value) >= 1<<20,
		WithHeaders: len(r.Headers) > 0, NoTimestamp: r.Timestamp == -1, ZeroTimestamp: r.Timestamp == 0,
		FutureTimestamp: r.Timestamp > c.now+86_400_000,
	} {
		if is {
			c.census[s]++
		}
	}
}
