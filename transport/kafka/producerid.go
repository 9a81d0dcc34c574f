package kafka

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/clustermirror/mirror/cluster"
)

// A producer id of a mirror is
//
//	bit 63      0, ids are not negative
//	bit 62      1, which no cluster hands out
//	bits 61-22  hash of mirror name, destination topic id and partition
//	bits 21-0   tag of the stretch: its start offset mod 4,194,303
//
// so that every worker, also one that was just started and has no store, derives
// the same id and recognises on the broker which ids are its own. The highest tag
// is that of the fillers of StartAt.
type ownIDs int64 // an id with tag 0

const (
	tagBits   = 22
	tagMask   = 1<<tagBits - 1
	fillerTag = tagMask
)

func idsOf(mirror string, topic cluster.TopicID, partition int32) ownIDs {
	return ownIDs(prefix("clustermirror producer id 1\x00", mirror, topic, partition))
}

func prefix(kind, mirror string, topic cluster.TopicID, partition int32) int64 {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte(mirror))
	h.Write([]byte{0})
	h.Write(topic[:])
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(partition)))
	sum := binary.BigEndian.Uint64(h.Sum(nil))
	return int64(1<<62 | sum>>2&^tagMask)
}

// markIDs are the producer ids of the markers that fill gaps: another hash of the same
// things, and as the tag the upper bits of the offset a marker belongs at. Its lower 26 and
// the marker's rank (see turn) are the coordinator epoch. So a marker says where it belongs,
// and a broker, which takes no lower coordinator epoch after a higher one, refuses one that
// comes too late.
type markIDs int64

const (
	lowBits  = 1<<31 - 1
	markBits = 31 - rankBits
)

func marksOf(mirror string, topic cluster.TopicID, partition int32) markIDs {
	return markIDs(prefix("clustermirror marker id 2\x00", mirror, topic, partition))
}

// at is the id of the marker at an offset.
func (m markIDs) at(offset int64) int64 { return int64(m) | offset>>markBits&tagMask }

// end is the first offset whose marker has a higher id than the one at offset.
func (m markIDs) end(offset int64) int64 { return (offset>>markBits + 1) << markBits }

// epoch is the coordinator epoch of the marker at an offset.
func (m markIDs) epoch(offset int64, rank int32) int32 {
	return int32(offset&(1<<markBits-1))<<rankBits | rank
}

func (m markIDs) has(id int64) bool { return id&^tagMask == int64(m) }

// belongs is the offset of a marker.
func (m markIDs) belongs(id int64, coordinatorEpoch int32) int64 {
	return id&tagMask<<markBits | int64(coordinatorEpoch>>rankBits)
}

// stretch is the id of the stretch that starts at an offset.
func (o ownIDs) stretch(start int64) int64 { return int64(o) | start%fillerTag }

// after is the id to take when id is in use already: start offsets that differ by
// a multiple of the tags' number would share one.
func (o ownIDs) after(id int64) int64 { return int64(o) | (id&tagMask+1)%fillerTag }

func (o ownIDs) filler() int64          { return int64(o) | fillerTag }
func (o ownIDs) has(id int64) bool      { return id&^tagMask == int64(o) }
func (o ownIDs) stretches(i int64) bool { return o.has(i) && i&tagMask != fillerTag }

// sequence is the only sequence number that the batch at an offset can have.
func sequence(base int64) int32 { return int32(base & 0x7fffffff) }

// continues reports whether the record after the one with sequence last belongs
// at the offset end.
func continues(last int32, end int64) bool {
	return last >= 0 && (int64(last)+1)&0x7fffffff == end&0x7fffffff
}
