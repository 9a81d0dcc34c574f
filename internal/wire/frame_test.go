package wire

import (
	"sync"
	"testing"
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
