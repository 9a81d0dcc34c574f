package coordinator

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
)

// Positions tells where mirrors into a cluster stopped, so that a mirror the other
// way goes on there (semantics of failback), and where a cluster's topics come from,
// so that loops are refused. A store of mirrors into that cluster has it.
type Positions interface {
	// Positions answers for each partition of the cluster whose store this is, in
	// order: what mirrors from the cluster with id source have left behind there.
	Positions(ctx context.Context, source string, partitions []cluster.Partition) ([]PositionAnswer, error)
}

// PositionAnswer answers one partition of Positions.
type PositionAnswer struct {
	// Found: a mirror from the cluster asked for has stopped here, at Position. Its
	// offset is the first that was not mirrored.
	Found    bool
	Position cluster.Position
	// TopicID is the id that the topic had at the cluster asked for.
	TopicID cluster.TopicID
	// Active names a mirror from the cluster asked for that has not stopped here, nor
	// failed before it was aligned; empty when there is none.
	Active string
	// Sources are the ids of the clusters that the topic comes from just now, nearest
	// first; empty when no mirror into it is active.
	Sources []string
}

// AnswerPositions is what every store's Positions comes to: records holds all
// records of each mirror, or at least those of the partitions asked for. It is
// pure.
func AnswerPositions(records map[string][]Record, source string, partitions []cluster.Partition) []PositionAnswer {
	at := make(map[cluster.Partition]int, len(partitions))
	out := make([]PositionAnswer, len(partitions))
	for i, p := range partitions {
		at[p] = i
	}
	for mirror, recs := range records {
		for _, r := range recs {
			if i, asked := at[r.Partition]; asked {
				out[i].note(mirror, source, r)
			}
		}
	}
	return out
}

// note adds one record to the answer. Of several that stopped the one that came
// farthest counts.
func (a *PositionAnswer) note(mirror, source string, r Record) {
	from := len(r.Sources) > 0 && r.Sources[0] == source
	// One that has failed before it was aligned has nothing here in this stretch: before
	// it appends it asks again who is at work.
	done := r.State == StateStopped || r.State == StateUnknown && !r.Appended || r.State == StateFailed && !r.Aligned
	switch {
	case !done:
		a.Sources = r.Sources
		if from && (a.Active == "" || mirror < a.Active) {
			a.Active = mirror
		}
	case from && r.HasPosition && (!a.Found || r.Position.Offset > a.Position.Offset):
		a.Found, a.Position, a.TopicID = true, r.Position, r.TopicID
	}
}
