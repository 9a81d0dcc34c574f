package broker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/clustermirror/mirror/cluster"
)

// fetchHead are the fields of one partition in a fetch answer, in front of its
// records, that may be changed: all have a fixed size.
type fetchHead struct {
	code                                int16
	highWatermark, lastStable, logStart int64
	preferred                           int32
}

// fetchRelay passes a fetch answer of version 11 to 18 on while it arrives, however
// large it is, and lets the partitions in it that have an error be changed. It is
// right for any bytes: what is no such answer is an error.
type fetchRelay struct {
	in      *bufio.Reader
	out     *bufio.Writer
	left    int64 // of the answer
	version int16
	session int32 // in the place of the real broker's
	change  func(fetchKey, *fetchHead)
	records int64 // bytes that were passed on

	err error
	buf [64]byte
}

// run passes on what follows the correlation id.
func (r *fetchRelay) run() error {
	if r.flexible() {
		r.tags()
	}
	r.pass(4) // throttle time
	r.pass(2) // the error code of the whole, which concerns sessions: there is none
	r.take(4)
	r.put(binary.BigEndian.AppendUint32(nil, uint32(r.session)))
	for n := r.count(); n > 0 && r.err == nil; n-- {
		r.topic()
	}
	if r.flexible() {
		r.tags()
	}
	if r.err == nil && r.left != 0 {
		r.err = fmt.Errorf("%w: %d bytes behind a fetch answer", errNoAnswer, r.left)
	}
	return r.err
}

func (r *fetchRelay) flexible() bool { return r.version >= 12 }

func (r *fetchRelay) topic() {
	var name fetchKey
	if r.version >= 13 {
		copy(name.topic[:], r.pass(len(cluster.TopicID{})))
	} else {
		name.name = r.text()
	}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		r.partition(name)
	}
	if r.flexible() {
		r.tags()
	}
}

func (r *fetchRelay) partition(name fetchKey) {
	head := r.take(4 + 2 + 3*8)
	if r.err != nil {
		return
	}
	name.partition = int32(binary.BigEndian.Uint32(head))
	p := fetchHead{
		code:          int16(binary.BigEndian.Uint16(head[4:])),
		highWatermark: int64(binary.BigEndian.Uint64(head[6:])), lastStable: int64(binary.BigEndian.Uint64(head[14:])),
		logStart: int64(binary.BigEndian.Uint64(head[22:])), preferred: -1,
	}
	if p.code != 0 {
		r.change(name, &p)
	}
	b := append(make([]byte, 0, len(head)), head[:4]...)
	b = binary.BigEndian.AppendUint16(b, uint16(p.code))
	for _, n := range []int64{p.highWatermark, p.lastStable, p.logStart} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	r.put(b)
	for n := r.count(); n > 0 && r.err == nil; n-- { // aborted transactions
		r.pass(16)
		if r.flexible() {
			r.tags()
		}
	}
	preferred := r.take(4)
	if p.preferred >= 0 {
		preferred = binary.BigEndian.AppendUint32(nil, uint32(p.preferred))
	}
	r.put(preferred)
	size := r.count32()
	r.records += max(size, 0)
	r.copy(size)
	if r.flexible() {
		r.tags()
	}
}

// take reads bytes that are not passed on; they are valid until the next call.
func (r *fetchRelay) take(n int) []byte {
	if r.err == nil && int64(n) > r.left {
		r.err = fmt.Errorf("%w: a fetch answer is cut short", errNoAnswer)
	}
	if r.err != nil {
		return nil
	}
	r.left -= int64(n)
	_, r.err = io.ReadFull(r.in, r.buf[:n])
	return r.buf[:n]
}

func (r *fetchRelay) put(b []byte) {
	if r.err == nil {
		_, r.err = r.out.Write(b)
	}
}

// pass reads bytes and passes them on.
func (r *fetchRelay) pass(n int) []byte {
	b := r.take(n)
	r.put(b)
	return b
}

func (r *fetchRelay) copy(n int64) {
	if r.err == nil && n > r.left {
		r.err = fmt.Errorf("%w: a fetch answer is cut short", errNoAnswer)
	}
	if r.err != nil || n <= 0 {
		return
	}
	r.left -= n
	_, r.err = io.CopyN(r.out, r.in, n)
}

func (r *fetchRelay) uvarint() uint64 {
	var b []byte
	for r.err == nil {
		b = append(b, r.pass(1)...)
		if n := len(b); n == binary.MaxVarintLen32 || r.err == nil && b[n-1] < 0x80 {
			break
		}
	}
	v, used := binary.Uvarint(b)
	if r.err == nil && used <= 0 {
		r.err = fmt.Errorf("%w: a length in a fetch answer", errNoAnswer)
	}
	return v
}

// count32 is a length of the size of four bytes, or compact; -1 is null.
func (r *fetchRelay) count32() int64 {
	if r.flexible() {
		return int64(r.uvarint()) - 1
	}
	b := r.pass(4)
	if r.err != nil {
		return 0
	}
	return int64(int32(binary.BigEndian.Uint32(b)))
}

// count is how many elements an array has. Each takes a byte at least.
func (r *fetchRelay) count() int64 {
	n := r.count32()
	if r.err == nil && n > r.left {
		r.err = fmt.Errorf("%w: %d elements in %d bytes of a fetch answer", errNoAnswer, n, r.left)
	}
	return n
}

// text is the name of a topic.
func (r *fetchRelay) text() string {
	var n int64
	if r.flexible() {
		n = int64(r.uvarint()) - 1
	} else if b := r.pass(2); r.err == nil {
		n = int64(int16(binary.BigEndian.Uint16(b)))
	}
	var b []byte
	for r.err == nil && n > 0 {
		part := r.pass(int(min(n, int64(len(r.buf)))))
		b, n = append(b, part...), n-int64(len(part))
	}
	return string(b)
}

func (r *fetchRelay) tags() {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.uvarint()
		r.copy(int64(r.uvarint()))
	}
}
