package batch

import (
	"encoding/binary"

	"github.com/clustermirror/mirror/internal/crc32c"
)

// Patch is what an appender changes in a batch: all of it in the header.
type Patch struct {
	Base            int64
	LeaderEpoch     int32
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	ClearAttributes int16 // attribute bits to take away
}

// Patch changes the header in place. The checksum is carried over, not computed
// anew: CRC is linear, so the new one is the old one combined with the checksum
// of the header's difference, shifted by the length of the payload. The payload
// is not read, and a bit that flipped in it before or after is still found by
// whoever checks the batch next. The header must be one that Check accepted, or
// at least a whole batch of magic 2. Patch allocates nothing.
func (h Header) Patch(p Patch) {
	binary.BigEndian.PutUint64(h[atBase:], uint64(p.Base))
	binary.BigEndian.PutUint32(h[atLeaderEpoch:], uint32(p.LeaderEpoch))

	covered := h[atAttributes:HeaderSize]
	var before [HeaderSize - atAttributes]byte
	copy(before[:], covered)
	binary.BigEndian.PutUint16(h[atAttributes:], uint16(h.Attributes()&^p.ClearAttributes))
	binary.BigEndian.PutUint64(h[atProducerID:], uint64(p.ProducerID))
	binary.BigEndian.PutUint16(h[atProducerEpoch:], uint16(p.ProducerEpoch))
	binary.BigEndian.PutUint32(h[atBaseSequence:], uint32(p.BaseSequence))
	d := uint32(0) // checksum of the difference, from state 0: a loop over few bytes, without a call
	for i, b := range before {
		d = crc32c.Table[byte(d)^b^covered[i]] ^ d>>8
	}
	sum := h.CRC() ^ crc32c.Shift(d, uint32(h.Length()-HeaderSize))
	binary.BigEndian.PutUint32(h[atCRC:], sum)
}

// SetProducer changes only who produced the batch.
func (h Header) SetProducer(id int64, epoch int16, sequence int32) {
	h.Patch(Patch{Base: h.Base(), LeaderEpoch: h.LeaderEpoch(), ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence})
}

// SetLeaderEpoch changes the leader epoch of a batch of magic 2 in place. The checksum
// does not cover it.
func (h Header) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(h[atLeaderEpoch:], uint32(epoch))
}
