package epoch

import "github.com/clustermirror/mirror/cluster"

// Diverge is one step of finding the end of what two logs have in common. The log
// with this history ends at logEnd; its owner has asked the other log's leader where
// an epoch of it ends (at first the latest), and got answer.
//
// No record from cut on is common to both. With done, all below cut is (as far as
// epochs can tell), and the search is over; an answer without an offset knows
// nothing of the epoch, and keeps all. Otherwise it goes on: ask for epoch ask, with
// cut as logEnd. When ask is cluster.NoEpoch, and not done, the history has run out:
// the other log knows no epoch of it. That is conclusive only where the log begins
// at cut or behind; else what is below has to be compared by its records.
//
// ask is always an epoch of h below answer.Epoch.
func (h History) Diverge(answer cluster.EpochEnd, logEnd int64) (cut int64, ask int32, done bool) {
	if answer.EndOffset < 0 {
		return logEnd, cluster.NoEpoch, true
	}
	if answer.Epoch < 0 { // from a leader that knows ends only (KIP-101)
		return min(answer.EndOffset, logEnd), cluster.NoEpoch, true
	}
	next := h.above(answer.Epoch) // the first epoch of ours that the other log does not have
	ours := logEnd
	if next < len(h) {
		ours = min(logEnd, h[next].Start)
	}
	switch {
	case next > 0 && h[next-1].Epoch == answer.Epoch:
		return min(ours, answer.EndOffset), cluster.NoEpoch, true
	case next == 0: // the other's end of that epoch bounds what came before ours
		return min(ours, answer.EndOffset), cluster.NoEpoch, false
	}
	return ours, h[next-1].Epoch, false
}
