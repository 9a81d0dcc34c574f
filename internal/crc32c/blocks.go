package crc32c

// blockSize is what a checksum is taken of at a time. The ends of a piece that are no
// whole block are read again when its checksum is asked for: half a block at each end.
const blockSize = 4 << 10

// Blocks are the checksums of the blocks of a buffer that is filled from its start on.
// They are taken while the bytes are still in the processor's cache; to read a large
// buffer once more later costs several times as much. The zero value has none.
type Blocks struct {
	buf  []byte
	sums []uint32 // of the blocks that are full
}

// Reset begins with another buffer, of which nothing is filled. The memory for the
// checksums stays.
func (b *Blocks) Reset(buf []byte) {
	if n := len(buf) / blockSize; cap(b.sums) < n {
		b.sums = make([]uint32, 0, n)
	}
	b.buf, b.sums = buf, b.sums[:0]
}

// Filled says that the first n bytes of the buffer are there.
func (b *Blocks) Filled(n int) {
	for at := len(b.sums) * blockSize; at+blockSize <= n; at += blockSize {
		b.sums = append(b.sums, Checksum(b.buf[at:at+blockSize]))
	}
}

// Checksum is the checksum of the bytes from..to, both in the buffer. Of blocks that lie
// in there whole, it is of the bytes that there were when they became full.
func (b *Blocks) Checksum(from, to int) uint32 {
	first, last := (from+blockSize-1)/blockSize, min(to/blockSize, len(b.sums))
	if first >= last {
		return Checksum(b.buf[from:to])
	}
	sum := Checksum(b.buf[from : first*blockSize])
	for _, s := range b.sums[first:last] {
		sum = Combine(sum, s, blockSize)
	}
	rest := b.buf[last*blockSize : to]
	return Combine(sum, Checksum(rest), len(rest))
}
