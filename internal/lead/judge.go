package lead

import (
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

// noEpochEnd is no diverging epoch, and no answer to OffsetForLeaderEpoch.
var noEpochEnd = cluster.EpochEnd{Epoch: cluster.NoEpoch, EndOffset: -1}

// bounds are what a fetch is compared with.
type bounds struct {
	history    epoch.History
	proven     bool
	ceiling    int32 // where the history is not known, epochs are not above it; -1 not known
	start, end int64
	owes       int64 // the follower's cut, -1 none
}

// judge compares a follower's log with ours as Kafka's leader does (Partition.readRecords):
// first the range, then the epochs. The follower shares our log up to its offset when
// neither an error nor a diverging epoch is answered.
func judge(b bounds, f Fetch) (code int16, diverging cluster.EpochEnd) {
	if b.owes >= 0 && f.Offset > b.owes {
		// Named by the follower's own last epoch, of which it cuts what lies behind. Epoch
		// 0 serves a log that knows none: it is cut at the offset as it is (KIP-101).
		return 0, cluster.EpochEnd{Epoch: max(f.LastEpoch, 0), EndOffset: b.owes}
	}
	if f.Offset < b.start {
		return OffsetOutOfRange, noEpochEnd
	}
	unknown := len(b.history) == 0 || f.LastEpoch < b.history[0].Epoch
	switch {
	case f.LastEpoch < 0:
	case unknown && b.ceiling >= 0 && f.LastEpoch > b.ceiling:
		return 0, cluster.EpochEnd{Epoch: b.ceiling, EndOffset: f.Offset}
	case len(b.history) == 0:
		if b.proven && f.Offset > b.start { // nothing of it is ours
			return 0, cluster.EpochEnd{Epoch: f.LastEpoch, EndOffset: b.start}
		}
	default:
		if e := endOf(b.history, f.LastEpoch, b.end); e.Epoch < f.LastEpoch || e.EndOffset < f.Offset {
			return 0, e
		}
	}
	if f.Offset > b.end {
		return OffsetOutOfRange, noEpochEnd
	}
	return 0, noEpochEnd
}

// endOf is where an epoch ends in a log. What is above the latest has no records in it:
// unlike a broker, we do not enter our own epoch before its first batch.
func endOf(h epoch.History, asked int32, end int64) cluster.EpochEnd {
	if latest, ok := h.Latest(); ok && asked > latest.Epoch {
		asked = latest.Epoch
	}
	return h.EndFor(asked, end)
}
