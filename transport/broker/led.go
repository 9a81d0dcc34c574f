package broker

import (
	"cmp"
	"slices"

	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/wire"
)

// Error codes that clients get, or that a real broker gives where we lead.
const (
	codeOffsetOutOfRange    wire.Code = 1
	codeNotLeader           wire.Code = 6
	codeReplicaNotAvailable wire.Code = 9
	codeTopicAuthorization  wire.Code = 29
	codePolicyViolation     wire.Code = 44
	codeStorageError        wire.Code = 56
	codeFencedEpoch         wire.Code = 74
	codeUnknownEpoch        wire.Code = 75
)

// empty: nothing is led, so that nothing has to be looked into.
func (r *registry) empty() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.ids) == 0
}

// epochCode is a leader's answer to the epoch that a client believes in; -1 is
// none. It is pure.
func epochCode(theirs, ours int32) int16 {
	switch {
	case theirs < 0 || theirs == ours:
		return 0
	case theirs < ours:
		return int16(codeFencedEpoch)
	}
	return int16(codeUnknownEpoch)
}

// absent reports that a real broker gave this code because it has no replica of a
// partition, or none that works. All of them are said after the authorization.
func absent(code int16) bool {
	return code == int16(codeNotLeader) || code == int16(codeReplicaNotAvailable) || code == int16(codeStorageError)
}

// consumed decides what a consumer gets in place of the error that a real broker
// gave for a partition that we lead; away says that another broker has to be asked
// for the records. It is pure.
//
// A follower that lags knows nothing of offsets which a leader would know, and its
// OFFSET_OUT_OF_RANGE would make a consumer begin anew: it stands only where no
// replica has the offset, and the consumer knows of the epoch in which that is so; one
// that has read what was cut since looks for where the logs part. NOT_LEADER_OR_FOLLOWER
// under an unchanged epoch would make clients ask for metadata in vain.
func consumed(code int16, epoch int32, offset int64, s lead.State) (_ int16, away bool) {
	switch {
	case !absent(code) && code != int16(codeOffsetOutOfRange):
		return code, false
	case epochCode(epoch, s.Epoch) != 0:
		return epochCode(epoch, s.Epoch), false
	case absent(code):
		return 0, true
	case reaches(s, offset):
		return 0, false
	}
	return code, false
}

// reaches reports that the log has, or may have, an offset.
func reaches(s lead.State, offset int64) bool {
	if s.Phase == lead.Gathering {
		return true
	}
	end := max(s.LogEnd, s.HighWatermark)
	if s.Cut && offset > end {
		return true // our epoch is about to be raised
	}
	if offset < s.LogStart || offset > end {
		return false
	}
	gone := func(f lead.Follower) bool { return f.Known && f.LogStart > offset }
	known := slices.ContainsFunc(s.Followers, func(f lead.Follower) bool { return f.Known })
	return !known || slices.ContainsFunc(s.Followers, func(f lead.Follower) bool { return f.Known && !gone(f) })
}

// holders are the followers from which an offset can be read now, the longest
// first. It is pure.
func holders(s lead.State, offset int64) []int32 {
	var fit []lead.Follower
	for _, f := range s.Followers {
		if f.Live && f.Known && f.LogStart <= offset && offset <= f.Holds {
			fit = append(fit, f)
		}
	}
	slices.SortStableFunc(fit, func(a, b lead.Follower) int { return cmp.Compare(b.Holds, a.Holds) })
	ids := make([]int32, len(fit))
	for n, f := range fit {
		ids[n] = f.Replica
	}
	return ids
}
