package memory

import "github.com/clustermirror/mirror/cluster"

// epochs are the leader epochs of one replica's log and where each begins, both
// ascending (Kafka's LeaderEpochFileCache).
type epochs []epochStart

type epochStart struct {
	epoch int32
	start int64
}

// latest is the last epoch, cluster.NoEpoch of an empty history.
func (e epochs) latest() int32 {
	if len(e) == 0 {
		return cluster.NoEpoch
	}
	return e[len(e)-1].epoch
}

// assign notes that an epoch begins at an offset. What contradicts it goes, as in
// Kafka: entries with an epoch or a start not below the new ones. An epoch in which a
// leader has written nothing goes first, so that the one before it may go on: a
// mirror topic was opened and is a mirror topic again.
func (e *epochs) assign(epoch int32, start int64) {
	if epoch < 0 {
		return
	}
	s := *e
	if n := len(s); n > 0 && s[n-1].epoch == epoch && s[n-1].start <= start {
		return
	}
	for n := len(s); n > 0 && s[n-1].start >= start; n = len(s) {
		s = s[:n-1]
	}
	if n := len(s); n > 0 && s[n-1].epoch == epoch {
		*e = s
		return
	}
	for n := len(s); n > 0 && s[n-1].epoch >= epoch; n = len(s) {
		s = s[:n-1]
	}
	*e = append(s, epochStart{epoch, start})
}

// cutTail forgets the epochs that begin at or after the log's new end.
func (e *epochs) cutTail(end int64) {
	s := *e
	for n := len(s); n > 0 && s[n-1].start >= end; n = len(s) {
		s = s[:n-1]
	}
	*e = s
}

// cutHead makes the history begin at the log's new start.
func (e *epochs) cutHead(start int64) {
	s := *e
	n := 0
	for n < len(s) && s[n].start <= start {
		n++
	}
	if n == 0 {
		return
	}
	s[n-1].start = start
	*e = append(s[:0], s[n-1:]...)
}

// endOf answers OffsetForLeaderEpoch as LeaderEpochFileCache.endOffsetFor does.
func (e epochs) endOf(epoch int32, logEnd int64) cluster.EpochEnd {
	none := cluster.EpochEnd{Epoch: cluster.NoEpoch, EndOffset: -1}
	if epoch < 0 || len(e) == 0 {
		return none
	}
	if e.latest() == epoch {
		return cluster.EpochEnd{Epoch: epoch, EndOffset: logEnd}
	}
	higher := 0
	for higher < len(e) && e[higher].epoch <= epoch {
		higher++
	}
	switch {
	case higher == len(e): // larger than any: only a log that keeps the epochs of another cluster can be asked so
		return none
	case higher == 0: // older than any: where the log begins
		return cluster.EpochEnd{Epoch: epoch, EndOffset: e[0].start}
	}
	return cluster.EpochEnd{Epoch: e[higher-1].epoch, EndOffset: e[higher].start}
}
