// Package epoch holds the history of a log's leader epochs, and the step by which
// two logs find out where they part (KIP-101, KIP-279). It is pure.
package epoch

import (
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// Start is an epoch and the first offset that has it.
type Start struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// History is the leader epochs of one log, as Kafka's LeaderEpochFileCache keeps
// them: epochs and starts both rise, and an epoch ends where the next begins. What
// stands below the first start has an epoch that is not known, and that is lower.
//
// It is a value: methods never change what they were called on, so that copies may
// share memory.
type History []Start

// Valid reports whether epochs and starts rise and none is negative.
func (h History) Valid() bool {
	last := Start{Epoch: -1, Start: -1}
	for _, s := range h {
		if s.Epoch <= last.Epoch || s.Start <= last.Start {
			return false
		}
		last = s
	}
	return true
}

// Assign notes that the epoch begins at an offset. The latest epoch that is known
// to begin there or before stays as it is; entries that contradict the new one (a
// later epoch, or a start there or behind) go. An epoch or an offset below 0 says
// nothing.
func (h History) Assign(epoch int32, start int64) History {
	if epoch < 0 || start < 0 {
		return h
	}
	if n := len(h); n > 0 && h[n-1].Epoch == epoch && h[n-1].Start <= start {
		return h
	}
	n := len(h)
	for n > 0 && (h[n-1].Epoch >= epoch || h[n-1].Start >= start) {
		n--
	}
	return append(slices.Clip(h[:n]), Start{Epoch: epoch, Start: start})
}

// Latest is the latest epoch; false when none is known.
func (h History) Latest() (Start, bool) {
	if len(h) == 0 {
		return Start{Epoch: cluster.NoEpoch}, false
	}
	return h[len(h)-1], true
}

// At is the epoch of an offset, cluster.NoEpoch when it is not known.
func (h History) At(offset int64) int32 {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Start <= offset {
			return h[i].Epoch
		}
	}
	return cluster.NoEpoch
}

// StartOf is where an epoch of the history begins, -1 when it is none of it.
func (h History) StartOf(epoch int32) int64 {
	for _, s := range h {
		if s.Epoch == epoch {
			return s.Start
		}
	}
	return -1
}

// EndFor answers OffsetForLeaderEpoch for a log that ends at logEnd: the largest
// epoch not above the one asked, and its end. Like Kafka's endOffsetFor it knows
// nothing (epoch and offset -1) of an epoch above the latest, since whoever asks for
// that one is ahead; below the first it answers the epoch asked and the first start.
func (h History) EndFor(epoch int32, logEnd int64) cluster.EpochEnd {
	latest, ok := h.Latest()
	switch {
	case !ok || epoch < 0 || epoch > latest.Epoch:
		return cluster.EpochEnd{Epoch: cluster.NoEpoch, EndOffset: -1}
	case epoch == latest.Epoch:
		return cluster.EpochEnd{Epoch: epoch, EndOffset: logEnd}
	}
	i := h.above(epoch)
	if i == 0 {
		return cluster.EpochEnd{Epoch: epoch, EndOffset: h[0].Start}
	}
	return cluster.EpochEnd{Epoch: h[i-1].Epoch, EndOffset: h[i].Start}
}

// above is the index of the first epoch above the one given.
func (h History) above(epoch int32) int {
	i, _ := slices.BinarySearchFunc(h, epoch, func(s Start, e int32) int {
		if s.Epoch <= e {
			return -1
		}
		return 1
	})
	return i
}

// TruncateFrom is the history of the log cut at an offset: what begins there or
// behind goes.
func (h History) TruncateFrom(offset int64) History {
	n := len(h)
	for n > 0 && h[n-1].Start >= offset {
		n--
	}
	return slices.Clip(h[:n])
}

// TrimTo is the history of the log that begins at start: the epoch at start begins
// there, those before it go.
func (h History) TrimTo(start int64) History {
	n := 0
	for n < len(h) && h[n].Start <= start {
		n++
	}
	if n == 0 || h[n-1].Start == start {
		return h[max(n-1, 0):]
	}
	return append(History{{Epoch: h[n-1].Epoch, Start: start}}, h[n:]...)
}
