package crc32c

import (
	"math/rand/v2"
	"testing"
)

// TestCombine tries Shift with it: lengths of any bits.
func TestCombine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 10_000)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	for range 2_000 {
		from := random.IntN(len(b) + 1)
		to := from + random.IntN(len(b)-from+1)
		cut := from + random.IntN(to-from+1)
		if got, want := Combine(Checksum(b[from:cut]), Checksum(b[cut:to]), to-cut), Checksum(b[from:to]); got != want {
			t.Fatalf("[%d,%d) cut at %d: %08x, want %08x", from, to, cut, got, want)
		}
	}
}

// TestBlocks asks for pieces of buffers of any size, filled in any steps.
func TestBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var blocks Blocks
	for range 50 {
		b := make([]byte, random.IntN(8*blockSize))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		blocks.Reset(b)
		for at := 0; at < len(b); blocks.Filled(at) {
			at += 1 + random.IntN(min(len(b)-at, 2*blockSize))
		}
		for range 200 {
			from := random.IntN(len(b) + 1)
			to := from + random.IntN(len(b)-from+1)
			if got, want := blocks.Checksum(from, to), Checksum(b[from:to]); got != want {
				t.Fatalf("[%d,%d) of %d: %08x, want %08x", from, to, len(b), got, want)
			}
		}
	}
}

// TestBlocksTakeThemOnce: a block is not read again after it was full, which is what they
// are for; its ends are.
func TestBlocksTakeThemOnce(t *testing.T) {
	b := make([]byte, 3*blockSize)
	var blocks Blocks
	blocks.Reset(b)
	blocks.Filled(2*blockSize + 1)
	before := blocks.Checksum(1, len(b))
	b[blockSize+1]++
	if blocks.Checksum(1, len(b)) != before {
		t.Error("a full block was read again")
	}
	b[2*blockSize]++
	if blocks.Checksum(1, len(b)) == before {
		t.Error("what is not full was not read")
	}
}

func TestBlocksDoNotAllocate(t *testing.T) {
	b := make([]byte, 1<<20)
	var blocks Blocks
	blocks.Reset(b)
	if n := testing.AllocsPerRun(10, func() {
		blocks.Reset(b[:1<<19])
		blocks.Filled(1 << 19)
		blocks.Checksum(7, 1<<19-7)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
