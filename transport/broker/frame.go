package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// request is one frame of a client, without its size.
type request struct {
	bytes []byte
	held  int64 // taken from the budget for it
}

// header is what every request begins with.
type header struct {
	key, version int16
	correlation  int32
	client       string
	body         []byte // after the client id: the tags of a flexible header first
}

var errFrame = errors.New("bytes that are no request")

// parseHeader reads a request header of version 1 or 2. It is pure, and right for
// any bytes.
func parseHeader(b []byte) (header, error) {
	if len(b) < 10 {
		return header{}, fmt.Errorf("%w: %d bytes", errFrame, len(b))
	}
	h := header{
		key: int16(binary.BigEndian.Uint16(b)), version: int16(binary.BigEndian.Uint16(b[2:])),
		correlation: int32(binary.BigEndian.Uint32(b[4:])),
	}
	n := int(int16(binary.BigEndian.Uint16(b[8:]))) // -1 is null
	if h.key < 0 || h.version < 0 || n < -1 || max(n, 0) > len(b)-10 {
		return header{}, fmt.Errorf("%w: key %d version %d", errFrame, h.key, h.version)
	}
	n = max(n, 0)
	h.client, h.body = string(b[10:10+n]), b[10+n:]
	return h, nil
}

// frameChunk is how much of a frame gets memory before it has arrived.
const frameChunk = 64 << 10

// readRequest reads one frame. Memory is taken as the bytes arrive, so that a size
// that is a lie costs a chunk. The caller gives held back.
func readRequest(ctx context.Context, r io.Reader, limit int32, memory *budget) (req request, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return req, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 8 || size > limit {
		return req, fmt.Errorf("%w: a frame of %d bytes (limit %d)", errFrame, size, limit)
	}
	defer func() {
		if err != nil {
			memory.give(req.held)
			req = request{}
		}
	}()
	for left := int(size); left > 0; {
		n := min(left, frameChunk)
		if err := memory.take(ctx, int64(n)); err != nil {
			return req, err
		}
		req.held += int64(n)
		at := len(req.bytes)
		req.bytes = append(req.bytes, make([]byte, n)...)
		if _, err := io.ReadFull(r, req.bytes[at:]); err != nil {
			return req, err
		}
		left -= n
	}
	return req, nil
}

// writeFrame writes bytes with their size in front, in one write.
func writeFrame(w io.Writer, b []byte) error {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	_, err := w.Write(append(out, b...))
	return err
}
