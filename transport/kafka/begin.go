package kafka

import (
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// began reports that this process has begun a stretch of the partition before.
func (l *lane) began() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id != 0
}

// begin turns what was found into the answer, and opens the lane when something
// may be appended.
func (c *Cluster) begin(s fetcher.Stretch, k *look, expiry time.Duration) fetcher.End {
	end := fetcher.End{LogStart: k.logStart, LogEnd: k.logEnd, HighWatermark: min(k.highWatermark, k.logEnd), TopicID: k.leader.TopicID, RoundTrip: k.roundTrip}
	if k.err != nil {
		end.Err = at(s.Partition, k.err)
		return end
	}
	l := c.lane(s.Partition)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topic != k.leader.TopicID || l.id != 0 && !k.own.has(l.id) {
		l.id, l.seen, l.end, l.unknownTo = 0, -1, 0, 0
		l.topic = k.leader.TopicID
	}
	v := k.verdict
	// A stretch that this process has begun is no sign: that is done before the log
	// is compared.
	end.Ours = k.ours() && (!v.marked || l.accounts(k.logEnd, v))
	if !s.New {
		v = l.remember(k, v)
		end.Err = l.suspect(k, v)
	}
	end.Stopped = v.stopped
	if v.foreign != nil && end.Err == nil {
		end.Err = &cluster.OffsetError{Partition: s.Partition, Span: *v.foreign, Err: cluster.ErrForeignWrite}
	}
	if end.Err != nil || v.id == 0 {
		return end
	}
	if len(l.runs) > 0 || l.inflight > 0 {
		// Another Ends of the same partition ran at the same time and its caller
		// appends already.
		end.Err = at(s.Partition, cluster.ErrFenced)
		return end
	}
	id, known := k.turn()
	l.takeTurn(id, known, s.Owner)
	l.sequenced = v.known || v.stamp != 0 || l.id == v.id && l.sequenced
	l.id, l.broker, l.expiry, l.err, l.refusing = v.id, k.leader.Broker, expiry, nil, false
	l.shift, l.doubtful, l.marks, l.fill = v.shift, 0, k.marks, nil
	if k.last != nil {
		l.stamp = k.last.maxTimestamp
	}
	l.proven = v.known && end.HighWatermark == k.logEnd
	// unknownTo stays: a request whose connection was lost may be carried out after
	// this look at the log, and then ours is the duplicate of our own.
	l.tail, l.end, l.seen, l.looked = k.logEnd, k.logEnd, -1, k.at
	l.displaced = cluster.Span{}
	return end
}

// remember adds what this process knows to a verdict. A stretch that was begun at
// this log end, and of which nothing has landed, goes on although the log does not
// show it. A log that went on from there with records of others was written to,
// even if the broker has forgotten ours.
func (l *lane) remember(k *look, v verdict) verdict {
	switch {
	case l.id == 0 || v.id == l.id || v.foreign != nil:
	case k.logEnd == l.end:
		return verdict{id: l.id, shift: l.shift}
	case v.id != 0 && k.logEnd > max(l.end, l.unknownTo) && k.last != nil && !k.own.has(k.last.producerID) && !k.marks.has(k.last.producerID):
		return verdict{foreign: &cluster.Span{From: l.end, To: k.logEnd}}
	}
	return v
}

// suspect finds another worker: the log has grown by batches of this mirror that
// this process did not append. It is taken over when it has stood still between
// two looks.
func (l *lane) suspect(k *look, v verdict) error {
	if l.id == 0 || v.id == 0 {
		return nil
	}
	known := max(l.end, l.unknownTo)
	if k.logEnd <= known || k.logEnd == l.seen {
		return nil
	}
	l.seen = k.logEnd
	return fencedAt(l.p, known, k.logEnd)
}

// ours: the log shows records of this mirror.
func (e evidence) ours() bool {
	return len(e.states) > 0 || len(e.markers) > 0 ||
		e.last != nil && (e.own.has(e.last.producerID) || e.marks.has(e.last.producerID))
}

// accounts reports that this process has seen all of the markers in a log land, or has
// sent them.
func (l *lane) accounts(logEnd int64, v verdict) bool {
	return l.id == v.id && logEnd <= max(l.end, l.unknownTo) && v.shift >= l.shift && v.shift <= l.shift+l.doubtful
}

// unsure: markers whose outcome is not known may still be on their way to the log, of
// this process, or of one that has just gone.
func (l *lane) unsure(v verdict) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return v.marked && (l.id == 0 || l.doubtful > 0)
}
