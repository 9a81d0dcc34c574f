package lead

import (
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// State is a partition at one moment.
type State struct {
	Phase         Phase
	Epoch         int32
	LogStart      int64
	LogEnd        int64 // of the longest live follower
	Next          int64 // where the next append belongs: LogEnd and what waits in the window
	HighWatermark int64
	// Quorum is what a quorum holds: the high watermark, unless one in sync lacks some of it.
	Quorum     int64
	LastStable int64
	// Disputed: followers end in different epochs, and without a history nobody can say
	// which of them are right. Gathering ends only after Know.
	Disputed bool
	// Cut: there was a cut under this epoch. Readers may stand behind the log end, and only
	// another epoch has them look for where it is.
	Cut bool
	// OpenUnknown: a cut has opened transactions again of which nothing is remembered.
	// Until Reopen, LastStable and Open leave them out.
	OpenUnknown bool
	Window      int64 // bytes in memory
	History     []EpochStart
	Followers   []Follower
}

// Follower is one real replica.
type Follower struct {
	Replica int32
	Live    bool  // alive by the metadata log, and not idle
	Known   bool  // it has fetched under our present epoch
	Offset  int64 // of its latest fetch
	// LastEpoch is that of its last batch then, or one in which it has followed a leader
	// since; -1 none.
	LastEpoch int32
	LogStart  int64
	LastSeen  time.Time
	Holds     int64 // the end of what it is known to share with our log, -1 when that is not known
	CaughtUp  bool  // alive, and it holds our log up to the high watermark at least
	Owes      int64 // it has to cut here yet, and may be away for long; -1 nothing
}

// State is how the partition stands.
func (p *Partition) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{
		Phase: p.phase, Epoch: p.epoch, LogStart: p.start, LogEnd: p.start, Next: p.end, HighWatermark: p.high,
		Quorum:     quorumEnd(p.followers, p.need()),
		Disputed:   !p.found && !p.proven && disputed(p.followers, p.start),
		LastStable: p.open.lastStable(p.high), Cut: p.cutHere, OpenUnknown: p.open.unknown, Window: p.window.size,
		History: slices.Clone(p.history), Followers: make([]Follower, 0, len(p.followers)),
	}
	for i := range p.followers {
		f := &p.followers[i]
		s.LogEnd = max(s.LogEnd, f.counts())
		s.Followers = append(s.Followers, Follower{
			Replica: f.id, Live: f.awaited(p.then()), Known: f.heard, Offset: f.offset, LastEpoch: f.last, LogStart: f.logStart,
			LastSeen: f.lastSeen(), Holds: f.holds, CaughtUp: p.found && f.awaited(p.then()) && f.holds >= p.high, Owes: f.owes,
		})
	}
	return s
}

// Epoch is our leader epoch.
func (p *Partition) Epoch() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch not above the one asked and
// its end; {-1, -1} when there is none, and while the followers' ends are gathered.
func (p *Partition) EpochEnd(epoch int32) cluster.EpochEnd {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.phase != Leading || epoch < 0 || epoch > p.epoch:
		return noEpochEnd
	case len(p.history) == 0 && epoch == p.epoch:
		return cluster.EpochEnd{Epoch: epoch, EndOffset: p.end}
	}
	return endOf(p.history, epoch, p.end)
}

// Open are the transactions without a marker, by first offset.
func (p *Partition) Open() []OpenTxn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open.all()
}

// Reopen replaces what is known of open transactions (State.OpenUnknown).
func (p *Partition) Reopen(open []OpenTxn) {
	p.mu.Lock()
	defer p.unlock()
	p.open = newTransactions(open)
	p.changed = true
}
