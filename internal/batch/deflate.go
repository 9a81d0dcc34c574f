package batch

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// xerialBlock is how much Kafka's Java client puts into one snappy block.
const xerialBlock = 32 << 10

// deflate compresses a payload; an unknown codec leaves it as it is.
func deflate(codec Codec, payload []byte) []byte {
	var out bytes.Buffer
	switch codec {
	case Gzip:
		pour(gzip.NewWriter(&out), payload)
	case Snappy:
		return deflateXerial(payload)
	case LZ4:
		pour(lz4.NewWriter(&out), payload)
	case Zstd:
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic("batch: zstd without unusual options: " + err.Error())
		}
		pour(w, payload)
	default:
		return payload
	}
	return out.Bytes()
}

// pour writes payload through a compressor into memory, which cannot fail.
func pour(w io.WriteCloser, payload []byte) {
	_, err := w.Write(payload)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("batch: compressing into memory: " + err.Error())
	}
}

func deflateXerial(payload []byte) []byte {
	out := append([]byte(nil), xerial...)
	out = binary.BigEndian.AppendUint32(out, 1) // version
	out = binary.BigEndian.AppendUint32(out, 1) // lowest compatible version
	for len(payload) > 0 {
		n := min(len(payload), xerialBlock)
		block := snappy.Encode(nil, payload[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		payload = payload[n:]
	}
	return out
}
