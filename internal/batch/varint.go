package batch

import (
	"encoding/binary"
	"math"
)

// cursor takes zigzag varints and length-prefixed bytes off the front of b. What
// cannot be read makes it bad, and it gives zero values from then on.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() { c.b, c.bad = nil, true }

func (c *cursor) varint64() int64 {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		v := c.b[0]
		c.b = c.b[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) varint32() int32 {
	v := c.varint64()
	if v < math.MinInt32 || v > math.MaxInt32 {
		c.fail()
		return 0
	}
	return int32(v)
}

func (c *cursor) skip(n int) {
	if n > len(c.b) {
		c.fail()
		return
	}
	c.b = c.b[n:]
}

// take is the next n bytes, never nil unless the cursor is bad.
func (c *cursor) take(n int32) []byte {
	if n < 0 || int(n) > len(c.b) {
		c.fail()
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// nullable is a length and so many bytes; nil for a negative length, which is
// null to the Java client too (DefaultRecord).
func (c *cursor) nullable() []byte {
	n := c.varint32()
	if n < 0 {
		return nil
	}
	return c.take(n)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}
