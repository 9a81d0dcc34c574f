package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// ErrLimit: the uncompressed records of a batch are larger than the decoder's
// limit.
var ErrLimit = errors.New("uncompressed records are larger than the limit")

// maxWindow is the largest zstd window that Kafka's Java side accepts (zstd's
// own default, window log 27).
const maxWindow = 128 << 20

// inflater keeps one decompressor of each codec and the buffer they write to.
type inflater struct {
	src  bytes.Reader
	buf  []byte
	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// inflate gives the uncompressed records of h: a piece of h itself where they are
// not compressed, otherwise of the inflater's buffer, valid until the next call.
func (f *inflater) inflate(h Header, limit int) ([]byte, error) {
	payload := h[HeaderSize:h.Length()]
	if h.Codec() != None {
		var err error
		payload, err = f.unpack(h.Codec(), payload, limit)
		switch {
		case errors.Is(err, ErrLimit):
			return nil, tooLarge(h, limit)
		case errors.Is(err, errCodec):
			return nil, corrupt("batch at offset %d: %v", h.Base(), h.Codec())
		case err != nil:
			return nil, corrupt("batch at offset %d: %v: %v", h.Base(), h.Codec(), err)
		}
	}
	if len(payload) > limit {
		return nil, tooLarge(h, limit)
	}
	return payload, nil
}

var errCodec = errors.New("no such codec")

// unpack gives what a codec has compressed, in the inflater's buffer. The error is
// ErrLimit, errCodec or the decompressor's own.
func (f *inflater) unpack(codec Codec, b []byte, limit int) (_ []byte, err error) {
	switch f.buf = f.buf[:0]; codec {
	case Snappy:
		err = f.snappy(b, limit)
	case Gzip, LZ4, Zstd:
		var r io.Reader
		if r, err = f.open(codec, b); err == nil {
			err = f.read(r, limit)
		}
	default:
		err = errCodec
	}
	return f.buf, err
}

func tooLarge(h Header, limit int) error {
	return fmt.Errorf("%w of %d bytes: batch at offset %d, %v, %d bytes", ErrLimit, limit, h.Base(), h.Codec(), h.Length())
}

// open points the codec's decompressor at payload.
func (f *inflater) open(codec Codec, payload []byte) (r io.Reader, err error) {
	f.src.Reset(payload)
	switch codec {
	case Gzip:
		if f.gzip == nil {
			f.gzip = new(gzip.Reader)
		}
		return f.gzip, f.gzip.Reset(&f.src)
	case LZ4:
		if f.lz4 == nil {
			f.lz4 = lz4.NewReader(nil)
		}
		f.lz4.Reset(&f.src)
		return f.lz4, nil
	}
	if f.zstd == nil {
		// Concurrency 1 decodes in the caller: no goroutine, nothing to close.
		f.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
	}
	return f.zstd, f.zstd.Reset(&f.src)
}

// read fills the buffer from r up to its end.
func (f *inflater) read(r io.Reader, limit int) error {
	for {
		if len(f.buf) == cap(f.buf) {
			f.buf = slices.Grow(f.buf, 32<<10)
		}
		n, err := r.Read(f.buf[len(f.buf):cap(f.buf)])
		f.buf = f.buf[:len(f.buf)+n]
		if len(f.buf) > limit {
			return ErrLimit
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// xerial is what Kafka's Java client writes before snappy data: a magic and two
// version numbers; blocks with their lengths follow.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

// snappy reads xerial's framing, or one bare block as other clients write it.
func (f *inflater) snappy(b []byte, limit int) error {
	if !bytes.HasPrefix(b, xerial) {
		return f.snappyBlock(b, limit)
	}
	for len(b) > 0 {
		if bytes.HasPrefix(b, xerial) { // streams may follow each other
			if len(b) < xerialHeader {
				return io.ErrUnexpectedEOF
			}
			b = b[xerialHeader:]
			continue
		}
		if len(b) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(b))
		if b = b[4:]; n > int64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		if err := f.snappyBlock(b[:n], limit); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (f *inflater) snappyBlock(b []byte, limit int) error {
	n, err := snappy.DecodedLen(b)
	if err != nil {
		return err
	}
	if n > limit-len(f.buf) {
		return ErrLimit
	}
	at := len(f.buf)
	f.buf = slices.Grow(f.buf, n)[:at+n]
	_, err = snappy.Decode(f.buf[at:], b)
	return err
}
