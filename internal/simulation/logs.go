package simulation

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/transport/memory"
)

// view is one replica of a partition, as the oracle reads it.
type view struct {
	start, end, high int64
	bytes            []byte
	batches          []batch.Header // of bytes
	broker           int32
	up               bool
}

// look reads a partition's replicas. The first is the leader's.
func (w *world) look(at string, p cluster.Partition) (st memory.State, views []view, err error) {
	c := w.clusters[at]
	if st, err = c.State(p); err != nil {
		return st, nil, err
	}
	for _, r := range st.Replicas {
		v := view{start: r.LogStart, end: r.LogEnd, high: r.HighWatermark, broker: r.Broker, up: r.Up}
		v.bytes = c.LogOf(p, r.Broker)
		v.batches = split(v.bytes)
		if r.Broker == st.Leader.Broker && len(views) > 0 {
			views = append([]view{v}, views...)
			continue
		}
		views = append(views, v)
	}
	if st.Leader.Broker < 0 || len(views) == 0 {
		return st, nil, fmt.Errorf("%v has no leader", p)
	}
	return st, views, nil
}

func split(b []byte) (out []batch.Header) {
	for w := batch.Walk(b); w.Next(); {
		out = append(out, w.Header())
	}
	return out
}

// from are the batches that hold something at or after an offset.
func (v view) from(offset int64) []batch.Header {
	for i, h := range v.batches {
		if h.Next() > offset {
			return v.batches[i:]
		}
	}
	return nil
}

// cell is one record that a consumer would see.
type cell struct {
	offset, timestamp int64
	at                string // the cluster where it was written
	serial            int64
}

func (c cell) String() string { return fmt.Sprintf("%d:%s%d", c.offset, c.at, c.serial) }

// cells reads the records of batches from an offset on.
func cells(batches []batch.Header, from int64) (out []cell, err error) {
	for _, h := range batches {
		if h.Control() {
			continue
		}
		if err := h.Check(); err != nil {
			return out, fmt.Errorf("batch at offset %d: %w", h.Base(), err)
		}
		err := batch.Decode(h, func(r batch.Record) error {
			if r.Phantom || r.Offset < from {
				return nil
			}
			serial, err := strconv.ParseInt(string(r.Value), 10, 64)
			out = append(out, cell{offset: r.Offset, timestamp: r.Timestamp, at: string(r.Key), serial: serial})
			return err
		})
		if err != nil {
			return out, fmt.Errorf("batch at offset %d: %w", h.Base(), err)
		}
	}
	return out, nil
}

// Where a batch's own leader epoch stands, which no checksum covers (KIP-101).
const epochFrom, epochTo = 12, 16

// same reports whether two batches are the same bytes; the leader epoch counts where
// destinations keep it.
func same(a, b batch.Header, epochs bool) bool {
	if epochs {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(a[:epochFrom], b[:epochFrom]) && bytes.Equal(a[epochTo:], b[epochTo:])
}
