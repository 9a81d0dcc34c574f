package metalog

import (
	"encoding/binary"
	"errors"
	"math"
)

// UUID is an id of Kafka's: an incarnation or a log directory.
type UUID [16]byte

var errShort = errors.New("record is cut short")

// cursor reads the flexible encoding (KIP-482). After the first error it reads
// zeros; err says what was wrong. Lengths are checked against what is left, so
// that hostile ones allocate nothing.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) take(n int) []byte {
	if c.err != nil || n < 0 || n > len(c.b) {
		c.fail(errShort)
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

func (c *cursor) uvarint() uint32 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || v > math.MaxUint32 {
		c.fail(errShort)
		return 0
	}
	c.b = c.b[n:]
	return uint32(v)
}

func (c *cursor) int8() int8 {
	if b := c.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (c *cursor) bool() bool { return c.int8() != 0 }

func (c *cursor) int16() int16 {
	if b := c.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (c *cursor) int64() int64 {
	if b := c.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (c *cursor) uuid() UUID {
	if b := c.take(16); b != nil {
		return UUID(b)
	}
	return UUID{}
}

// length reads a compact length: -1 for null. Each element has size bytes at
// least.
func (c *cursor) length(size int) int {
	n := int64(c.uvarint()) - 1
	if n*int64(size) > int64(len(c.b)) {
		c.fail(errShort)
		return 0
	}
	return int(n)
}

// bytes is a copy; nil for null.
func (c *cursor) bytes() []byte {
	n := c.length(1)
	if n < 0 {
		return nil
	}
	return append([]byte{}, c.take(n)...)
}

func (c *cursor) nullableString() *string {
	n := c.length(1)
	if n < 0 {
		return nil
	}
	s := string(c.take(n))
	return &s
}

// string reads null as the empty string.
func (c *cursor) string() string {
	if s := c.nullableString(); s != nil {
		return *s
	}
	return ""
}

// ids is nil for null, and not nil for an empty array.
func (c *cursor) ids() []int32 {
	n := c.length(4)
	if n < 0 || c.err != nil {
		return nil
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = c.int32()
	}
	return out
}

// uuids is nil for null, and not nil for an empty array.
func (c *cursor) uuids() []UUID {
	n := c.length(16)
	if n < 0 || c.err != nil {
		return nil
	}
	out := make([]UUID, n)
	for i := range out {
		out[i] = c.uuid()
	}
	return out
}

// tags reads a section of tagged fields; visit reads the ones it knows from a
// cursor of their own and leaves the others.
func (c *cursor) tags(visit func(tag uint32, field *cursor)) {
	for n := c.uvarint(); n > 0 && c.err == nil; n-- {
		tag := c.uvarint()
		size := c.uvarint()
		if int64(size) > int64(len(c.b)) {
			c.fail(errShort)
			return
		}
		field := &cursor{b: c.take(int(size))}
		if visit != nil && c.err == nil {
			visit(tag, field)
			if field.err != nil {
				c.fail(field.err)
			}
		}
	}
}
