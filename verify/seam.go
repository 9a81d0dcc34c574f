package verify

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
)

// Reader is one of the two clusters. Its methods are safe for concurrent use and
// return soon after ctx is cancelled.
type Reader interface {
	// Read returns up to about maxBytes of whole record batches, the first of which
	// holds offset or is the first after it, in memory of their own. Empty means
	// there is nothing below the high watermark at or after offset. Nothing is left
	// out: control batches and what was aborted are part of it.
	Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error)
	// LogOffsets gives log start and high watermark at the leader.
	LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error)
}

// Streamer is a Reader that reads a partition faster than by single Reads: on a
// connection of its own, without a copy. A comparison uses it where it is there.
type Streamer interface {
	Reader
	// Stream prepares to read one partition. It may connect when it is first read.
	Stream(p cluster.Partition, maxBytes int32) Stream
}

// Stream reads one partition. It is used by one goroutine.
type Stream interface {
	// Next is Read, but the bytes are lent: they are good until release is called,
	// once, from any goroutine, also after Close. Offsets ascend from call to call and
	// mostly continue where the last answer ended. release is nil with an error.
	Next(ctx context.Context, offset int64) (b []byte, release func(), err error)
	Close() error
}

// open is r's own way of streaming, or single Reads.
func open(r Reader, p cluster.Partition, maxBytes int32) Stream {
	if s, ok := r.(Streamer); ok {
		return s.Stream(p, maxBytes)
	}
	return &reads{r, p, maxBytes}
}

// reads makes a Stream of single Reads.
type reads struct {
	r        Reader
	p        cluster.Partition
	maxBytes int32
}

func (s *reads) Next(ctx context.Context, offset int64) ([]byte, func(), error) {
	b, err := s.r.Read(ctx, s.p, offset, s.maxBytes)
	if err != nil {
		return nil, nil, err
	}
	return b, func() {}, nil
}

func (s *reads) Close() error { return nil }
