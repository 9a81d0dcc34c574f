package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/clustermirror/mirror/internal/crc32c"
)

func TestFrameClasses(t *testing.T) {
	p := NewFramePool(0)
	for n, want := range map[int]int{0: 4096, 1: 4096, 4096: 4096, 4097: 8192, 1 << 20: 1 << 20, 1<<20 + 1: 2 << 20, 32 << 20: 32 << 20, 32<<20 + 1: 32<<20 + 1} {
		f := p.Get(n)
		if f.Size() != want || len(f.Bytes()) != n {
			t.Errorf("Get(%d): size %d, %d bytes; want size %d", n, f.Size(), len(f.Bytes()), want)
		}
		f.Release()
	}
}

func TestFrameReferences(t *testing.T) {
	p := NewFramePool(0)
	f := p.Get(100)
	f.Bytes()[0] = 7
	f.Retain()
	f.Release()
	if p.Idle() != 0 {
		t.Fatal("given back while it is held")
	}
	f.Release()
	if p.Idle() != 4096 {
		t.Fatalf("idle is %d, want 4096", p.Idle())
	}
	if g := p.Get(50); g != f || g.Bytes()[0] != 7 || len(g.Bytes()) != 50 {
		t.Error("not reused as it was")
	}
	f.Release()
	for name, misuse := range map[string]func(*Frame){"Release": (*Frame).Release, "Retain": (*Frame).Retain} {
		func() {
			free := NewFramePool(0).Get(1)
			free.Release()
			defer func() {
				if recover() == nil {
					t.Errorf("%s of a free frame did not panic", name)
				}
			}()
			misuse(free)
		}()
	}
}

func TestFramePoolIsBounded(t *testing.T) {
	p := NewFramePool(64 << 10)
	hold := func(n, size int) {
		var held []*Frame
		for range n {
			held = append(held, p.Get(size))
		}
		for _, f := range held {
			f.Release()
		}
	}
	hold(20, 8<<10)
	if p.Idle() != 64<<10 {
		t.Errorf("idle is %d, want the bound", p.Idle())
	}
	hold(1, 1<<20)
	if p.Idle() != 64<<10 {
		t.Errorf("a frame above the bound was kept: idle %d", p.Idle())
	}
	hold(2, 32<<10) // what is used now takes the room of what was used before
	if len(p.free[3]) != 2 || p.Idle() > 64<<10 {
		t.Errorf("%d frames of the class in use, idle %d", len(p.free[3]), p.Idle())
	}
}

func TestFramePoolConcurrent(t *testing.T) {
	p := NewFramePool(1 << 20)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 2000 {
				f := p.Get(1000 * (j % 20))
				for k := range f.Bytes() {
					f.Bytes()[k] = byte(i)
				}
				for k, b := range f.Bytes() {
					if b != byte(i) {
						t.Errorf("byte %d belongs to %d", k, b)
						return
					}
				}
				f.Release()
			}
		})
	}
	all.Wait()
}

var unmarked = newLowWater(new(Conn))

// TestFrameSums: an answer that comes in pieces has the checksums of its bytes, from any
// offset of its body on; also the next one in the same memory, summed or not.
func TestFrameSums(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	p := NewFramePool(0)
	for n := range 40 {
		size := random.IntN(100_000)
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f := p.Get(size)
		if err := f.readFrom(bufio.NewReader(iotest.OneByteReader(bytes.NewReader(b))), n%3 > 0, unmarked); err != nil {
			t.Fatal(err)
		}
		f.from = min(size, n) // the header's tags
		body := f.Bytes()
		for range 50 {
			from := random.IntN(len(body) + 1)
			to := from + random.IntN(len(body)-from+1)
			if got, want := f.Checksum(from, to), crc32c.Checksum(body[from:to]); got != want {
				t.Fatalf("[%d,%d) of %d: %08x, want %08x", from, to, size, got, want)
			}
		}
		f.Release()
	}
	for _, sum := range []bool{false, true} {
		if err := p.Get(10).readFrom(bufio.NewReader(bytes.NewReader(make([]byte, 9))), sum, unmarked); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut off, summed %v: %v", sum, err)
		}
	}
}
