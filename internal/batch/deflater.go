package batch

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// deflater is deflate for many payloads: it keeps one compressor of each codec.
type deflater struct {
	gzip *gzip.Writer
	lz4  *lz4.Writer
	zstd *zstd.Encoder
}

// append appends the compressed payload to dst; an unknown codec leaves it as it is.
func (d *deflater) append(dst []byte, codec Codec, payload []byte) []byte {
	switch codec {
	case Gzip:
		if d.gzip == nil {
			d.gzip = gzip.NewWriter(nil)
		}
		return flow(d.gzip, dst, payload)
	case LZ4:
		if d.lz4 == nil {
			d.lz4 = lz4.NewWriter(nil)
		}
		return flow(d.lz4, dst, payload)
	case Zstd:
		if d.zstd == nil {
			w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
			if err != nil {
				panic("batch: zstd without unusual options: " + err.Error())
			}
			d.zstd = w
		}
		return d.zstd.EncodeAll(payload, dst)
	}
	return append(dst, deflate(codec, payload)...)
}

func flow(w interface {
	io.WriteCloser
	Reset(io.Writer)
}, dst, payload []byte) []byte {
	out := bytes.NewBuffer(dst)
	w.Reset(out)
	pour(w, payload)
	return out.Bytes()
}
