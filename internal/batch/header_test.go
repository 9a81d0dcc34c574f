package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/crc32c"
)

// random is a batch of n bytes with a right checksum and sane header; its
// records are noise.
func random(r *rand.Rand, n int) Header {
	h := make(Header, n)
	for i := range h {
		h[i] = byte(r.Uint32())
	}
	h[atBase], h[atLastOffsetDelta], h[atCount] = 0, 0, 0
	binary.BigEndian.PutUint32(h[atLength:], uint32(n-lengthOffset))
	h[atMagic] = 2
	binary.BigEndian.PutUint32(h[atCRC:], crc32c.Checksum(h[atAttributes:]))
	return h
}

func TestHeaderFields(t *testing.T) {
	h := make(Header, HeaderSize)
	for i := range h {
		h[i] = byte(i + 1)
	}
	got := []any{
		h.Base(), h.Length(), h.LeaderEpoch(), h.Magic(), h.CRC(), h.Attributes(), h.LastOffsetDelta(), h.BaseTimestamp(),
		h.MaxTimestamp(), h.ProducerID(), h.ProducerEpoch(), h.BaseSequence(), h.Count(), h.Next(),
	}
	want := []any{
		int64(0x0102030405060708), 0x090a0b0c + 12, int32(0x0d0e0f10), int8(0x11), uint32(0x12131415), int16(0x1617),
		int32(0x18191a1b), int64(0x1c1d1e1f20212223), int64(0x2425262728292a2b), int64(0x2c2d2e2f30313233), int16(0x3435),
		int32(0x36373839), int32(0x3a3b3c3d), int64(0x0102030405060708 + 0x18191a1b + 1),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	for bit, has := range map[int16]func(Header) bool{
		AttrLogAppendTime: Header.LogAppendTime, AttrTransactional: Header.Transactional,
		AttrControl: Header.Control, AttrDeleteHorizon: Header.DeleteHorizon,
	} {
		for _, attributes := range []int16{0, bit, ^bit, -1} {
			binary.BigEndian.PutUint16(h[atAttributes:], uint16(attributes))
			if got, want := has(h), attributes&bit != 0; got != want {
				t.Errorf("bit %#x of %#x: %v, want %v", bit, attributes, got, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	put32 := func(at int, v int32) func(Header) Header {
		return func(h Header) Header { binary.BigEndian.PutUint32(h[at:], uint32(v)); return h }
	}
	set := func(at int, v byte) func(Header) Header { return func(h Header) Header { h[at] = v; return h } }
	for name, c := range map[string]struct {
		spoil  func(Header) Header
		want   error
		detail string
	}{
		"as it was":          {func(h Header) Header { return h }, nil, ""},
		"trailing bytes":     {func(h Header) Header { return append(h, 1, 2, 3) }, nil, ""},
		"bit in attributes":  {func(h Header) Header { h[atAttributes] ^= 1; return h }, cluster.ErrCorrupt, "checksum"},
		"bit in last byte":   {func(h Header) Header { h[len(h)-1] ^= 128; return h }, cluster.ErrCorrupt, "checksum"},
		"bit in checksum":    {func(h Header) Header { h[atCRC] ^= 1; return h }, cluster.ErrCorrupt, "checksum"},
		"magic 1":            {set(atMagic, 1), cluster.ErrOldFormat, "magic 1"},
		"magic 3":            {set(atMagic, 3), cluster.ErrCorrupt, "magic 3"},
		"negative count":     {put32(atCount, -1), cluster.ErrCorrupt, "count -1"},
		"negative delta":     {put32(atLastOffsetDelta, -2), cluster.ErrCorrupt, "delta -2"},
		"negative base":      {set(atBase, 0x80), cluster.ErrCorrupt, "base offset -"},
		"length too small":   {put32(atLength, 48), cluster.ErrCorrupt, "length 60"},
		"length negative":    {put32(atLength, -100), cluster.ErrCorrupt, "length -88"},
		"length beyond end":  {put32(atLength, 1<<20), cluster.ErrCorrupt, "bytes there"},
		"shorter than magic": {func(h Header) Header { return h[:16] }, cluster.ErrCorrupt, "16 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spoil(random(r, 200)).Check()
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.detail) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.detail)
			}
		})
	}
}

// The carried checksum is the one that all bytes give, whatever the length.
func TestPatchKeepsChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	sizes := []int{61, 62, 63, 64, 65, 124, 125, 126, 317, 4096, 65535 + 61, 1 << 20, 5 << 20}
	for range 200 {
		sizes = append(sizes, HeaderSize+r.IntN(1<<(1+r.IntN(18))))
	}
	for _, n := range sizes {
		h := random(r, n)
		p := Patch{
			Base: r.Int64(), LeaderEpoch: r.Int32(), ProducerID: int64(r.Uint64()), ProducerEpoch: int16(r.Uint32()),
			BaseSequence: int32(r.Uint32()), ClearAttributes: int16(r.Uint32()),
		}
		attributes, last, count := h.Attributes(), h.LastOffsetDelta(), h.Count()
		payload := crc32.ChecksumIEEE(h[HeaderSize:])
		h.Patch(p)
		if sum := crc32c.Checksum(h[atAttributes:]); sum != h.CRC() {
			t.Fatalf("%d bytes: carried checksum %08x, computed %08x", n, h.CRC(), sum)
		}
		got := Patch{h.Base(), h.LeaderEpoch(), h.ProducerID(), h.ProducerEpoch(), h.BaseSequence(), p.ClearAttributes}
		if got != p || h.Attributes() != attributes&^p.ClearAttributes {
			t.Fatalf("%d bytes: patched to %+v, attributes %#x; want %+v", n, got, h.Attributes(), p)
		}
		if h.LastOffsetDelta() != last || h.Count() != count || crc32.ChecksumIEEE(h[HeaderSize:]) != payload || h.Length() != n {
			t.Fatalf("%d bytes: patch changed what it must not", n)
		}
	}
}

// A bit that flipped before the patch is still seen after it: the patch must not
// bless a corruption.
func TestPatchKeepsCorruption(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		h := random(r, HeaderSize+1+r.IntN(1000))
		h[HeaderSize+r.IntN(len(h)-HeaderSize)] ^= 1 << r.IntN(8)
		h.Patch(Patch{Base: 1, ProducerID: 2, ProducerEpoch: 3, BaseSequence: 4})
		if err := h.Check(); !errors.Is(err, cluster.ErrCorrupt) {
			t.Fatalf("corruption passed: %v", err)
		}
	}
}

func TestPatchAllocatesNothing(t *testing.T) {
	h := random(rand.New(rand.NewPCG(7, 8)), 5000)
	if n := testing.AllocsPerRun(100, func() { h.Patch(Patch{Base: 7, ProducerID: 9}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte("payload"), int64(5), int32(1), int64(2), int16(3), int32(4), int16(8))
	f.Add([]byte{}, int64(-1), int32(-1), int64(-1), int16(-1), int32(-1), int16(-1))
	f.Fuzz(func(t *testing.T, payload []byte, base int64, epoch int32, id int64, pe int16, seq int32, clear int16) {
		h := random(rand.New(rand.NewPCG(uint64(base), uint64(id))), HeaderSize+len(payload))
		copy(h[HeaderSize:], payload)
		binary.BigEndian.PutUint32(h[atCRC:], crc32c.Checksum(h[atAttributes:]))
		h.Patch(Patch{base, epoch, id, pe, seq, clear})
		if sum := crc32c.Checksum(h[atAttributes:]); sum != h.CRC() {
			t.Fatalf("carried %08x, computed %08x", h.CRC(), sum)
		}
	})
}

func BenchmarkPatch(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			h := random(rand.New(rand.NewPCG(9, 9)), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var i int64
			for b.Loop() {
				i++
				h.Patch(Patch{Base: i, ProducerID: i, BaseSequence: int32(i)})
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	h := random(rand.New(rand.NewPCG(9, 9)), 16<<10)
	b.SetBytes(int64(len(h)))
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
