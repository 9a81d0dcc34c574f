package fetcher

import (
	"sync/atomic"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Progress is one partition's figures. The session writes them, anybody reads
// them; each is read by itself, so that two of them may be a moment apart.
type Progress struct {
	LogEnd   atomic.Int64 // all below it is at the destination, or was skipped
	Seen     atomic.Int64 // the destination's high watermark, as the owner has looked it up while nothing is copied
	Source   atomic.Int64 // the source's high watermark
	LogStart atomic.Int64 // the source's log start
	Records  atomic.Int64 // offsets copied since the process began, as the destination has acknowledged them
	Batches  atomic.Int64
	Bytes    atomic.Int64 // as on the wire, compressed
	Skipped  atomic.Int64 // offsets that the source deleted before they were copied
	Filled   atomic.Int64 // offsets that were filled since the process began, for the source has no record there
	// Truncated is the offsets that were cut from the destination's log. Whoever cuts
	// adds to it.
	Truncated atomic.Int64
	// Ceiling is the destination's leader epoch: batches with that epoch or a later
	// one are not appended (I5). -1: none. Whoever raises the epoch stores it here;
	// only where the destination keeps epochs is it looked at.
	Ceiling atomic.Int32
	Corrupt atomic.Int64 // batches that arrived corrupt and were fetched again
	Landed  atomic.Int64 // last success, milliseconds since 1970; 0 before the first
	Newest  atomic.Int64 // timestamp of the newest record copied, milliseconds; 0 before the first
	trouble atomic.Pointer[error]
	held    atomic.Pointer[Held]
}

// Trouble is why the partition makes no progress just now, nil when nothing is
// wrong. The partition goes on by itself.
func (p *Progress) Trouble() error {
	if e := p.trouble.Load(); e != nil {
		return *e
	}
	return nil
}

func (p *Progress) setTrouble(err error) {
	if err == nil {
		p.trouble.Store(nil)
		return
	}
	p.trouble.Store(&err)
}

// Held says which transaction at the source keeps the partition from going on, nil
// when none does. Nothing is wrong then, and no Trouble is shown. It takes some seconds
// to be noticed.
func (p *Progress) Held() *Held { return p.held.Load() }

func (p *Progress) setHeld(h *Held) { p.held.Store(h) }

// count adds what of an answered run has landed.
func (p *Progress) count(r *run) {
	landed := r.batches
	if r.result.Err != nil {
		landed = landed[:min(max(r.result.Batches, 0), len(landed))]
	}
	if len(landed) == 0 {
		return
	}
	records, filled, size, batches := int64(0), int64(0), int64(0), int64(0)
	for i := range landed {
		if n := landed[i].Next - landed[i].Base; landed[i].Hole() {
			filled += n
		} else {
			records += n
			batches++
		}
		size += int64(len(landed[i].Bytes))
	}
	p.Landed.Store(time.Now().UnixMilli())
	p.Records.Add(records)
	p.Filled.Add(filled)
	p.Batches.Add(batches)
	p.Bytes.Add(size)
	if ts := landed[len(landed)-1].MaxTimestamp; ts > 0 {
		p.Newest.Store(ts)
	}
}

// Report is what the fetcher tells its owner. The methods are called from the
// fetcher's loops and must not block.
type Report interface {
	EpochSink
	// Landed: the first append after an assignment or an error has succeeded.
	Landed(p cluster.Partition)
	// Failed: the partition has left the fetcher and needs a decision.
	Failed(p cluster.Partition, err error)
	// Skipped: the source's retention has deleted these offsets before they were
	// copied, and copying goes on behind them. Told once for each span.
	Skipped(p cluster.Partition, span cluster.Span)
	// RaiseNeeded: the next batch has a source epoch that is not below the
	// destination's own (I5). The partition has left the fetcher.
	RaiseNeeded(p cluster.Partition, epoch int32)
	// Stalled: nothing has landed for that long, though the source has more (or
	// its broker does not answer) and no error is known. Told once until it moves.
	Stalled(p cluster.Partition, since time.Duration)
	// Held: a transaction that is open at the source has kept the partition from going
	// on for as long as Stalled takes. Told once for each last stable offset.
	Held(p cluster.Partition, held Held)
	// Trimmed: the destination's log start followed the source's.
	Trimmed(p cluster.Partition, to int64)
}
