package verify

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// spans are what is compared: ascending, apart from each other, not empty.
type spans []cluster.Span

// over is the one that an offset is in, or the first one after it.
func (s spans) over(offset int64) (cluster.Span, bool) {
	i, _ := slices.BinarySearchFunc(s, offset, func(one cluster.Span, o int64) int {
		if one.To <= o {
			return -1
		}
		return 1
	})
	if i == len(s) {
		return cluster.Span{}, false
	}
	return s[i], true
}

func (s spans) has(offset int64) bool {
	one, ok := s.over(offset)
	return ok && offset >= one.From
}

// holds reports that a whole range is in one of them.
func (s spans) holds(from, to int64) bool {
	one, ok := s.over(from)
	return ok && from >= one.From && to <= one.To
}

// touches reports that a part of a range is in one of them.
func (s spans) touches(from, to int64) bool {
	one, ok := s.over(from)
	return ok && to > one.From
}

func (s spans) len() (n int64) {
	for _, one := range s {
		n += one.Len()
	}
	return n
}

// Sample takes part of a log for all of it. The log is looked at in blocks of
// offsets; which of them are taken depends on seed, partition and offset only, so
// that two sites take the same ones, at any time.
type Sample struct {
	// Fraction of the offsets, above 0 and below 1. The first and the last block are
	// always taken.
	Fraction float64
	// Seed chooses other blocks for the same fraction.
	Seed uint64
}

// sampleBlock is how many offsets are taken or left together. A block costs one
// read at least, of one batch at least.
const sampleBlock = 1024

// sampleChunk bounds a single read of a sample, in bytes: what lies behind a block
// is read for nothing.
const sampleChunk = 128 << 10

// all reports that nothing is left out.
func (s *Sample) all() bool { return s == nil || s.Fraction <= 0 || s.Fraction >= 1 }

// of picks the blocks of a span.
func (s *Sample) of(p cluster.Partition, span cluster.Span) spans {
	if span.Len() == 0 {
		return nil
	}
	if s.all() {
		return spans{span}
	}
	var picked spans
	first, last := span.From/sampleBlock, (span.To-1)/sampleBlock
	for b := first; b <= last; b++ {
		if b != first && b != last && !s.takes(p, b) {
			continue
		}
		one := cluster.Span{From: max(span.From, b*sampleBlock), To: min(span.To, (b+1)*sampleBlock)}
		if n := len(picked); n > 0 && picked[n-1].To == one.From {
			picked[n-1].To = one.To
			continue
		}
		picked = append(picked, one)
	}
	return picked
}

func (s *Sample) takes(p cluster.Partition, block int64) bool {
	h := fnv.New64a()
	h.Write([]byte(p.String()))
	h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.Seed), uint64(block)))
	x := h.Sum64() // FNV leaves neighbours close to each other: mix (splitmix64)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x)/math.MaxUint64 < s.Fraction
}
