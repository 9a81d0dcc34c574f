package wire

import (
	"bufio"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/clustermirror/mirror/internal/crc32c"
)

const (
	minFrameBits = 12 // 4 KiB
	maxFrameBits = 25 // 32 MiB; larger frames are made for one answer and left to the GC
	frameClasses = maxFrameBits - minFrameBits + 1
)

// Frame is the body of one answer, in pooled memory. It is handed over with one
// reference; each Retain needs one Release, and with the last the bytes belong
// to the next frame. Retain and Release are safe for concurrent use.
type Frame struct {
	pool *FramePool
	buf  []byte // as long as the memory held
	from int    // body is buf[from:to]
	to   int
	refs atomic.Int32

	summed bool
	sums   crc32c.Blocks // of buf[:to], when summed
}

// Bytes is the body after the response header. It may be changed by the holder.
func (f *Frame) Bytes() []byte { return f.buf[f.from:f.to] }

// Checksum is the CRC-32C checksum of Bytes()[from:to], most of it taken when the bytes
// came in: of what was changed there since, it may be either.
func (f *Frame) Checksum(from, to int) uint32 {
	if !f.summed {
		return crc32c.Checksum(f.Bytes()[from:to])
	}
	return f.sums.Checksum(f.from+from, f.from+to)
}

// Size is the memory held, in bytes; at least len(Bytes()).
func (f *Frame) Size() int { return len(f.buf) }

// Retain adds a reference.
func (f *Frame) Retain() {
	if f.refs.Add(1) <= 1 {
		panic("wire: Frame retained after its release")
	}
}

// Release gives one reference back. One too many panics: the bytes may already
// be another answer's, and going on would corrupt data.
func (f *Frame) Release() {
	switch n := f.refs.Add(-1); {
	case n == 0:
		f.pool.put(f)
	case n < 0:
		panic("wire: Frame released twice")
	}
}

// FramePool keeps released frames by size class, powers of two from 4 KiB to
// 32 MiB. Memory is not cleared between uses. Safe for concurrent use.
type FramePool struct {
	mu      sync.Mutex
	maxIdle int64
	idle    int64 // bytes in free; never above maxIdle
	free    [frameClasses][]*Frame
}

// NewFramePool makes a pool that keeps at most maxIdle bytes while nobody uses
// them. 0 means 64 MiB.
func NewFramePool(maxIdle int64) *FramePool {
	if maxIdle == 0 {
		maxIdle = 64 << 20
	}
	return &FramePool{maxIdle: maxIdle}
}

// Idle is the memory kept for reuse at the moment, in bytes.
func (p *FramePool) Idle() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle
}

// Get gives a frame of n bytes with one reference. Its content is arbitrary.
func (p *FramePool) Get(n int) *Frame {
	class := frameClass(n)
	if class >= frameClasses {
		return ready(&Frame{pool: p, buf: make([]byte, n)}, n)
	}
	p.mu.Lock()
	if list := p.free[class]; len(list) > 0 {
		f := list[len(list)-1]
		list[len(list)-1] = nil
		p.free[class] = list[:len(list)-1]
		p.idle -= int64(len(f.buf))
		p.mu.Unlock()
		return ready(f, n)
	}
	p.mu.Unlock()
	return ready(&Frame{pool: p, buf: make([]byte, 1<<(class+minFrameBits))}, n)
}

func ready(f *Frame, n int) *Frame {
	f.from, f.to, f.summed = 0, n, false
	f.refs.Store(1)
	return f
}

// frameClass is the smallest class that holds n bytes; frameClasses or more for
// frames that are not pooled.
func frameClass(n int) int {
	if n <= 1<<minFrameBits {
		return 0
	}
	return bits.Len(uint(n-1)) - minFrameBits
}

// readFrom fills the frame.
func (f *Frame) readFrom(r *bufio.Reader, sum bool, low *lowWater) error {
	if f.summed = sum; sum {
		f.sums.Reset(f.buf[:f.to])
	}
	for at := 0; at < f.to; {
		low.rest(f.to-at, r.Buffered())
		n, err := r.Read(f.buf[at:f.to])
		at += n
		if sum {
			f.sums.Filled(at)
		}
		if err != nil && at < f.to {
			return err
		}
	}
	return nil
}

func (p *FramePool) put(f *Frame) {
	class := frameClass(len(f.buf))
	size := int64(len(f.buf))
	if class >= frameClasses || size > p.maxIdle {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// What was used just now is likelier to be used next than what lies idle in
	// another class, so that room is made at the cost of the other classes.
	for other := frameClasses - 1; other >= 0 && p.idle+size > p.maxIdle; other-- {
		for other != class && len(p.free[other]) > 0 && p.idle+size > p.maxIdle {
			list := p.free[other]
			p.idle -= int64(len(list[len(list)-1].buf))
			list[len(list)-1] = nil
			p.free[other] = list[:len(list)-1]
		}
	}
	if p.idle+size > p.maxIdle {
		return
	}
	p.idle += size
	p.free[class] = append(p.free[class], f)
}
