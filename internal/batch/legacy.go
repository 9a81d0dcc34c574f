package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
)

// Where the fields of a message of format 0 or 1 stand (LegacyRecord). The checksum
// covers all behind it; format 1 has a timestamp before the key.
const (
	atLegacyCRC        = 12
	atLegacyAttributes = 17
	atLegacyTimestamp  = 18
)

// legacy is a message of format 0 or 1; it may wrap a set of them.
type legacy struct {
	Record
	magic      int8
	attributes int16
}

func (m *legacy) codec() Codec { return Codec(m.attributes & attrCodec) }

// stamped reports that the broker set the timestamp. Format 0 has none.
func (m *legacy) stamped() bool { return m.magic == 1 && m.attributes&AttrLogAppendTime != 0 }

// parseLegacy reads one whole entry of a message set and verifies its checksum. The
// bytes stay where they are.
func parseLegacy(h Header) (legacy, error) {
	m := legacy{magic: h.Magic(), attributes: int16(h[atLegacyAttributes])}
	m.Offset, m.Timestamp = h.Base(), -1
	if sum, says := crc32.ChecksumIEEE(h[atMagic:]), binary.BigEndian.Uint32(h[atLegacyCRC:]); sum != says {
		return m, corrupt("message at offset %d: checksum is %08x, its bytes give %08x", m.Offset, says, sum)
	}
	c := cursor{b: h[atLegacyTimestamp:]}
	if m.magic == 1 {
		if b := c.take(8); !c.bad {
			m.Timestamp = int64(binary.BigEndian.Uint64(b))
		}
	}
	m.Key, m.Value = c.legacy(), c.legacy()
	switch {
	case c.bad || len(c.b) > 0:
		return m, corrupt("message at offset %d does not parse", m.Offset)
	case m.Offset < 0 || m.Offset == math.MaxInt64:
		return m, corrupt("message at offset %d", m.Offset)
	}
	return m, nil
}

// Old reads a message of format 0 or 1 and verifies its checksum: its timestamp, -1 in format
// 0, and whether it wraps others, of which the last has its offset.
func (h Header) Old() (timestamp int64, wraps bool, err error) {
	m, err := parseLegacy(h)
	return m.Timestamp, m.codec() != None, err
}

// OldBase is the first offset in a message of format 0 or 1. One that wraps others is
// decompressed for it.
func (h Header) OldBase() (int64, error) {
	m, err := parseLegacy(h)
	if err != nil || m.codec() == None {
		return m.Offset, err
	}
	var f inflater
	inner, shift, err := f.unwrap(&m, DefaultLimit)
	if err != nil {
		return 0, err
	}
	w := Walk(inner)
	w.Next()
	return w.Header().Base() + shift, nil
}

// legacy is nullable with the fixed lengths of the old formats.
func (c *cursor) legacy() []byte {
	b := c.take(4)
	if c.bad {
		return nil
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < 0 {
		return nil
	}
	return c.take(n)
}

// unwrap gives the messages that a compressed one wraps, as bytes in the inflater's
// buffer. They were looked through: all of the same format, none compressed again,
// checksums right, offsets ascending. shift is what their offsets are to be raised by:
// in format 1 they count from 0 and the wrapper has the last one's, in format 0 they are
// absolute.
func (f *inflater) unwrap(m *legacy, limit int) (inner []byte, shift int64, err error) {
	if m.codec() > LZ4 {
		return nil, 0, corrupt("message at offset %d: %v in format %d", m.Offset, m.codec(), m.magic)
	}
	value := m.Value
	if m.codec() == LZ4 && m.magic == 0 {
		value = mendLZ4(value)
	}
	if inner, err = f.unpack(m.codec(), value, limit); errors.Is(err, ErrLimit) {
		return nil, 0, fmt.Errorf("%w of %d bytes: message at offset %d, %v, %d bytes", err, limit, m.Offset, m.codec(), len(m.Value))
	}
	if err != nil {
		return nil, 0, corrupt("message at offset %d: %v: %v", m.Offset, m.codec(), err)
	}
	first, last := int64(-1), int64(-1)
	w := Walk(inner)
	for w.Next() {
		one, err := parseLegacy(w.Header())
		switch {
		case w.Header().Magic() == 2 || one.magic != m.magic:
			return nil, 0, corrupt("message at offset %d: format %d inside of format %d", m.Offset, w.Header().Magic(), m.magic)
		case err != nil:
			return nil, 0, fmt.Errorf("inside of the message at offset %d: %w", m.Offset, err)
		case one.codec() != None:
			return nil, 0, corrupt("message at offset %d: compressed twice", m.Offset)
		case one.Offset <= last:
			return nil, 0, misnumbered("message at offset %d wraps one at %d behind one at %d", m.Offset, one.Offset, last)
		}
		if last = one.Offset; first < 0 {
			first = last
		}
	}
	if w.Err() != nil || len(w.Rest()) > 0 || first < 0 {
		return nil, 0, corrupt("message at offset %d: what it wraps does not parse", m.Offset)
	}
	if m.magic == 1 {
		shift = m.Offset - last
	}
	if shift < 0 || last+shift > m.Offset || m.Offset-first-shift > math.MaxInt32 {
		return nil, 0, misnumbered("message at offset %d wraps offsets %d to %d", m.Offset, first, last)
	}
	return inner, shift, nil
}

// mendLZ4 is a frame with the header checksum that the specification wants. Writers of
// format 0 took the frame's magic number into it, and readers of that format do not look
// at it (KAFKA-3160).
func mendLZ4(b []byte) []byte {
	const flags, contentSize = 4, 1 << 3
	if len(b) <= flags {
		return b
	}
	at := flags + 2
	if b[flags]&contentSize != 0 {
		at += 8
	}
	if at >= len(b) {
		return b
	}
	b = bytes.Clone(b)
	b[at] = byte(xxh32(b[flags:at]) >> 8)
	return b
}

// xxh32 is XXH32 with seed 0 of less than 16 bytes.
func xxh32(b []byte) uint32 {
	const prime1, prime2, prime3, prime4, prime5 uint32 = 0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f, 0x165667b1
	sum := prime5 + uint32(len(b))
	for len(b) >= 4 {
		sum = bits.RotateLeft32(sum+binary.LittleEndian.Uint32(b)*prime3, 17) * prime4
		b = b[4:]
	}
	for _, v := range b {
		sum = bits.RotateLeft32(sum+uint32(v)*prime5, 11) * prime1
	}
	sum ^= sum >> 15
	sum *= prime2
	sum ^= sum >> 13
	sum *= prime3
	return sum ^ sum>>16
}
