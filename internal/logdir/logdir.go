// Package logdir reads logs of partitions as brokers keep them on disk, and compares them
// byte for byte.
package logdir

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/epoch"
)

// Log is what a broker has of a partition.
type Log struct {
	Batches []Batch
	// Epochs are those of leader-epoch-checkpoint.
	Epochs epoch.History
}

// Batch is one of a log; of message formats 0 and 1 it is a message, and Next its offset
// plus 1.
type Batch struct {
	Base, Next int64
	Bytes      []byte
}

// Read reads the log of a partition out of a broker's log directory. A broker that is
// writing to it may have written half of the last batch, which is left out.
func Read(dir string, p cluster.Partition) (Log, error) {
	var l Log
	folder := filepath.Join(dir, p.String())
	segments, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return l, err
	}
	if len(segments) == 0 {
		return l, fmt.Errorf("%s: %w", folder, os.ErrNotExist)
	}
	slices.Sort(segments) // their names are offsets of the same length
	for _, segment := range segments {
		b, err := os.ReadFile(segment)
		if err != nil {
			return l, err
		}
		walk := batch.Walk(b)
		for walk.Next() {
			h := walk.Header()
			one := Batch{Base: h.Base(), Next: h.Base() + 1, Bytes: h}
			if h.Magic() == 2 {
				one.Next = h.Next()
			}
			l.Batches = append(l.Batches, one)
		}
		if err := walk.Err(); err != nil {
			return l, fmt.Errorf("%s: %w", segment, err)
		}
	}
	l.Epochs, err = epochs(filepath.Join(folder, "leader-epoch-checkpoint"))
	return l, err
}

// epochs reads a checkpoint: a version, a count, and a line with epoch and offset each.
func epochs(name string) (h epoch.History, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 0; lines.Scan(); n++ {
		if n < 2 {
			continue
		}
		var one epoch.Start
		if _, err := fmt.Sscan(lines.Text(), &one.Epoch, &one.Start); err != nil {
			return nil, fmt.Errorf("%s: line %d: %q", name, n+1, lines.Text())
		}
		h = append(h, one)
	}
	return h, lines.Err()
}

// From leaves out what ends at or before an offset. Brokers delete whole segments, so that
// what lies below the log start is there at some and not at others.
func (l Log) From(offset int64) Log {
	n := 0
	for n < len(l.Batches) && l.Batches[n].Next <= offset {
		n++
	}
	return Log{Batches: l.Batches[n:], Epochs: l.Epochs.TrimTo(offset)}
}

// FromFirstBatch is the log with every epoch from the first batch on that carries it. Of a
// source only: a broker before 3.0 that is told to keep message format 2 does so a moment
// before it keeps epochs, and its checkpoint may miss the batches of that moment.
func (l Log) FromFirstBatch() Log {
	epochs := slices.Clone(l.Epochs)
	for i, e := range epochs {
		n := slices.IndexFunc(l.Batches, func(b Batch) bool { return b.Base >= e.Start })
		for n--; n >= 0 && l.Batches[n].carries(e.Epoch); n-- {
			epochs[i].Start = l.Batches[n].Base
		}
	}
	return Log{Batches: l.Batches, Epochs: epochs}
}

func (b Batch) carries(epoch int32) bool {
	h := batch.Header(b.Bytes)
	return h.Magic() == 2 && h.LeaderEpoch() == epoch
}

// End is where the log ends.
func (l Log) End() int64 {
	if len(l.Batches) == 0 {
		return 0
	}
	return l.Batches[len(l.Batches)-1].Next
}

// written are the epochs that have a batch, each from its first batch on. A leader enters
// its own epoch when it is elected, and the cleaner takes batches where one began.
func (l Log) written() (h epoch.History) {
	for _, e := range l.Epochs {
		first := slices.IndexFunc(l.Batches, func(b Batch) bool { return b.Next > e.Start })
		if first >= 0 {
			h = h.Assign(e.Epoch, max(e.Start, l.Batches[first].Base))
		}
	}
	return h
}

// Diff says where two logs differ, byte for byte: in the batches, and in the offsets
// where their epochs begin. Empty when they do not.
func Diff(a, b Log) string {
	for i := range min(len(a.Batches), len(b.Batches)) {
		x, y := a.Batches[i], b.Batches[i]
		if bytes.Equal(x.Bytes, y.Bytes) {
			continue
		}
		at := 0
		for at < min(len(x.Bytes), len(y.Bytes)) && x.Bytes[at] == y.Bytes[at] {
			at++
		}
		return fmt.Sprintf("batch %d, [%d,%d) of %d bytes and [%d,%d) of %d bytes, differs from byte %d on",
			i, x.Base, x.Next, len(x.Bytes), y.Base, y.Next, len(y.Bytes), at)
	}
	if len(a.Batches) != len(b.Batches) {
		return fmt.Sprintf("%d batches up to %d and %d batches up to %d", len(a.Batches), a.End(), len(b.Batches), b.End())
	}
	if x, y := a.written(), b.written(); !slices.Equal(x, y) {
		return fmt.Sprintf("epochs begin at %s and at %s", shown(x), shown(y))
	}
	return ""
}

func shown(h epoch.History) string {
	var out []string
	for _, e := range h {
		out = append(out, fmt.Sprintf("%d:%d", e.Epoch, e.Start))
	}
	return "[" + strings.Join(out, " ") + "]"
}
