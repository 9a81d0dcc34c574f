package zoo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/pierrec/lz4/v4"

	"github.com/clustermirror/mirror/internal/batch"
)

// old makes a message of format 0 or 1, or a wrapper of several.
func (g *generator) old() {
	format := int8(g.r.IntN(2))
	rs, says := g.records()
	rs = rs[:min(len(rs), 30)]
	for i := range rs {
		rs[i].Headers = nil
		if format == 0 {
			rs[i].Timestamp = -1
		}
	}
	codec := batch.Codec(g.r.IntN(4))
	stamped := format == 1 && g.chance(4)
	g.made++
	if codec == batch.None {
		r := rs[0]
		if stamped {
			r.Timestamp = g.now
		}
		g.add(Batch{
			Bytes: OldMessage(format, r, stamped), Base: r.Offset, Next: r.Offset + 1, Records: []batch.Record{r},
			Says: fmt.Sprintf("message of format %d", format),
		})
		return
	}
	next := g.at + int64(len(rs))
	kept, b, stamp := rs, Batch{}, int64(-1)
	if !g.o.Dense && len(rs) > 4 && g.chance(3) {
		kept = append(append(kept[:0:0], rs[:1]...), rs[3:]...)
		b.Says = ", compacted"
	}
	if stamped {
		stamp = g.now
		b.Says += ", log append time"
	}
	b.Bytes, b.Base, b.Next = OldWrapper(format, codec, g.at, kept, stamp), g.at, next
	b.Records = slices.Clone(kept)
	for i := range b.Records {
		if stamped {
			b.Records[i].Timestamp = stamp
		}
	}
	b.Says = fmt.Sprintf("format %d, %v, %s%s", format, codec, says, b.Says)
	g.add(b)
}

// OldMessage is a record in message format 0 or 1, which has no headers, and in
// format 0 no timestamp. stamped: the broker set the timestamp.
func OldMessage(format int8, r batch.Record, stamped bool) []byte {
	attributes := byte(0)
	if stamped {
		attributes = 1 << 3
	}
	return message(format, attributes, r.Offset, r.Timestamp, r.Key, r.Value)
}

// OldWrapper is a compressed message set. In format 1 offsets inside count from base
// and the wrapper has the last record's; in format 0 they are absolute. stamp, if it is
// not -1, is the broker's timestamp, and counts for all; those inside stay.
func OldWrapper(format int8, codec batch.Codec, base int64, rs []batch.Record, stamp int64) []byte {
	var inner []byte
	last, most := int64(0), int64(-1)
	for _, r := range rs {
		offset := r.Offset
		if format == 1 {
			offset -= base
		}
		inner = append(inner, message(format, 0, offset, r.Timestamp, r.Key, r.Value)...)
		last, most = r.Offset, max(most, r.Timestamp)
	}
	attributes := byte(codec)
	if stamp != -1 {
		attributes |= 1 << 3
		most = stamp
	}
	return message(format, attributes, last, most, nil, squeeze(codec, format, inner))
}

// OldWrapped is a compressed message with anything inside. An unknown codec leaves it
// as it is.
func OldWrapped(format int8, codec batch.Codec, offset int64, inner []byte) []byte {
	if codec >= batch.Gzip && codec <= batch.LZ4 {
		inner = squeeze(codec, format, inner)
	}
	return message(format, byte(codec), offset, 0, nil, inner)
}

func message(format int8, attributes byte, offset, timestamp int64, key, value []byte) []byte {
	body := []byte{byte(format), attributes}
	if format == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, v := range [][]byte{key, value} {
		if v == nil {
			body = binary.BigEndian.AppendUint32(body, 1<<32-1)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(v)))
		body = append(body, v...)
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

func squeeze(codec batch.Codec, format int8, b []byte) []byte {
	var out bytes.Buffer
	switch codec {
	case batch.Gzip:
		pour(gzip.NewWriter(&out), b)
	case batch.Snappy:
		return xerial.Encode(nil, b)
	case batch.LZ4:
		w := lz4.NewWriter(&out)
		if err := w.Apply(lz4.BlockChecksumOption(false), lz4.ChecksumOption(false)); err != nil {
			panic("zoo: " + err.Error())
		}
		pour(w, b)
		if format == 0 {
			out.Bytes()[6] ^= 0x5a // writers of that time took the magic number into the checksum
		}
	default:
		panic(fmt.Sprintf("zoo: %v is no compression of format %d", codec, format))
	}
	return out.Bytes()
}

// pour writes into memory, which cannot fail.
func pour(w io.WriteCloser, b []byte) {
	_, err := w.Write(b)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("zoo: " + err.Error())
	}
}

// Misnumbered is a batch whose header says that it ends with its first record, as
// some clients wrote it; the broker believes it, and gives the next offset again.
func Misnumbered(base int64, values ...string) []byte {
	var rs []batch.Record
	for i, v := range values {
		rs = append(rs, batch.Record{Offset: base + int64(i), Timestamp: 1_700_000_000_000, Value: []byte(v)})
	}
	return batch.Encode(batch.Spec{Base: base, Records: rs, Next: base + 1})
}
