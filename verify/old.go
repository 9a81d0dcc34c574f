package verify

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Where the fields of a message before format 2 stand (LegacyRecord). Format 1 has
// a timestamp before the key.
const (
	oldCRC        = 12
	oldMagic      = 16
	oldAttributes = 17
	oldTimestamp  = 18

	oldLogAppendTime = 1 << 3
)

// old reports a message of format 0 or 1, or a wrapper of such.
func old(h batch.Header) bool { return h.Magic() == 0 || h.Magic() == 1 }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", cluster.ErrCorrupt, fmt.Sprintf(format, args...))
}

// checkOld verifies the checksum of a whole message.
func checkOld(h batch.Header) error {
	if sum, says := crc32.ChecksumIEEE(h[oldMagic:]), binary.BigEndian.Uint32(h[oldCRC:]); sum != says {
		return corrupt("message at offset %d: checksum is %08x, its bytes give %08x", h.Base(), says, sum)
	}
	return nil
}

// message is one of the old formats.
type message struct {
	batch.Record
	magic      int8
	attributes byte
}

// parseOld reads a whole message. Its bytes stay where they are.
func parseOld(h batch.Header) (message, error) {
	m := message{magic: h.Magic(), attributes: h[oldAttributes]}
	m.Offset, m.Timestamp = h.Base(), -1
	rest := []byte(h[oldTimestamp:])
	if m.magic == 1 {
		if len(rest) < 8 {
			return m, corrupt("message at offset %d does not parse", h.Base())
		}
		m.Timestamp = int64(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
	}
	ok := false
	if m.Key, rest, ok = oldBytes(rest); ok {
		m.Value, rest, ok = oldBytes(rest)
	}
	if !ok || len(rest) > 0 {
		return m, corrupt("message at offset %d does not parse", h.Base())
	}
	return m, nil
}

// oldBytes takes a length and so many bytes; a negative length is null.
func oldBytes(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int32(binary.BigEndian.Uint32(b))
	if b = b[4:]; n < 0 {
		return nil, b, true
	}
	if int(n) > len(b) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// oldDecoder gives the records of messages and wrappers as consumers see them.
type oldDecoder struct {
	limit   int
	src     bytes.Reader
	buf     bytes.Buffer
	gzip    *gzip.Reader
	lz4     *lz4.Reader
	records []batch.Record
}

// decode reads one entry of a message set. The records are good until the next call
// and as long as the bytes of h are.
func (d *oldDecoder) decode(h batch.Header) ([]batch.Record, error) {
	d.records = d.records[:0]
	m, err := parseOld(h)
	if err != nil {
		return nil, err
	}
	codec := batch.Codec(m.attributes & 7)
	if codec == batch.None {
		d.records = append(d.records, m.Record)
		return d.records, nil
	}
	inner, err := d.inflate(codec, m)
	if err != nil {
		return nil, fmt.Errorf("message at offset %d: %v: %w", m.Offset, codec, err)
	}
	return d.records, d.unwrap(m, inner)
}

// unwrap reads the messages inside a wrapper. In format 1 their offsets count from 0
// and the wrapper has the last one's; a wrapper stamped by the broker stamps all.
func (d *oldDecoder) unwrap(outer message, inner []byte) error {
	w := batch.Walk(inner)
	for w.Next() {
		h := w.Header()
		if !old(h) || h.Magic() != outer.magic {
			return corrupt("message at offset %d: format %d inside of format %d", outer.Offset, h.Magic(), outer.magic)
		}
		if err := checkOld(h); err != nil {
			return fmt.Errorf("inside of the message at offset %d: %w", outer.Offset, err)
		}
		m, err := parseOld(h)
		if err != nil {
			return err
		}
		if m.attributes&7 != 0 {
			return corrupt("message at offset %d: compressed twice", outer.Offset)
		}
		if outer.magic == 1 && outer.attributes&oldLogAppendTime != 0 {
			m.Timestamp = outer.Timestamp
		}
		d.records = append(d.records, m.Record)
	}
	if err := w.Err(); err != nil || len(w.Rest()) > 0 || len(d.records) == 0 {
		return corrupt("message at offset %d: what it wraps does not parse", outer.Offset)
	}
	last := d.records[len(d.records)-1].Offset
	if outer.magic == 1 {
		if last < 0 || last > outer.Offset {
			return corrupt("message at offset %d wraps relative offset %d", outer.Offset, last)
		}
		for i := range d.records {
			r := &d.records[i]
			if r.Offset < 0 || r.Offset > last {
				return corrupt("message at offset %d wraps relative offset %d", outer.Offset, r.Offset)
			}
			r.Offset += outer.Offset - last
		}
	}
	return nil
}

// inflate gives what a wrapper holds, in memory that the next call uses again.
func (d *oldDecoder) inflate(codec batch.Codec, m message) ([]byte, error) {
	limit := d.limit
	if limit <= 0 {
		limit = batch.DefaultLimit
	}
	d.src.Reset(m.Value)
	var r io.Reader
	switch codec {
	case batch.Gzip:
		if d.gzip == nil {
			d.gzip = new(gzip.Reader)
		}
		if err := d.gzip.Reset(&d.src); err != nil {
			return nil, corrupt("%v", err)
		}
		r = d.gzip
	case batch.Snappy:
		return unsnappy(m.Value, limit)
	case batch.LZ4:
		if d.lz4 == nil {
			d.lz4 = lz4.NewReader(nil)
		}
		d.src.Reset(mendedLZ4(m))
		d.lz4.Reset(&d.src)
		r = d.lz4
	default:
		return nil, corrupt("no compression of format %d", m.magic)
	}
	d.buf.Reset()
	n, err := d.buf.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, corrupt("%v", err)
	}
	if n > int64(limit) {
		return nil, batch.ErrLimit
	}
	return d.buf.Bytes(), nil
}

// xerialMagic begins what the Java client writes; 8 bytes of versions and blocks with
// their lengths follow. Other clients write one bare block.
const xerialMagic, xerialHead = "\x82SNAPPY\x00", 16

func unsnappy(b []byte, limit int) (out []byte, err error) {
	if !bytes.HasPrefix(b, []byte(xerialMagic)) {
		return unsnappyBlock(nil, b, limit)
	}
	for b = b[min(xerialHead, len(b)):]; len(b) > 0; {
		if len(b) < 4 {
			return nil, corrupt("snappy block is cut off")
		}
		n := int64(binary.BigEndian.Uint32(b))
		if b = b[4:]; n > int64(len(b)) {
			return nil, corrupt("snappy block is cut off")
		}
		if out, err = unsnappyBlock(out, b[:n], limit); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	return out, nil
}

func unsnappyBlock(out, b []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(b)
	if err == nil && n > limit-len(out) {
		return nil, batch.ErrLimit
	}
	if err == nil {
		at := len(out)
		out = slices.Grow(out, n)[:at+n]
		_, err = snappy.Decode(out[at:], b)
	}
	if err != nil {
		return nil, corrupt("%v", err)
	}
	return out, nil
}

// mendedLZ4 gives a frame the header checksum that the LZ4 specification wants.
// Writers of format 0 took the magic number into it (KAFKA-3160), and readers of
// that format do not look at it.
func mendedLZ4(m message) []byte {
	b := m.Value
	if m.magic != 0 || len(b) < 7 {
		return b
	}
	at := 6 // behind magic, flags and block descriptor
	if b[4]&(1<<3) != 0 {
		at += 8 // content size
	}
	if at >= len(b) {
		return b
	}
	mended := bytes.Clone(b)
	mended[at] = byte(xxh32(b[4:at]) >> 8)
	return mended
}

// xxh32 is the checksum of LZ4's frame headers, which have less than 16 bytes.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
