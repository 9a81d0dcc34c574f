package batch

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seenFrom is what readers see of a batch from an offset on.
func seenFrom(t *testing.T, h Header, from int64) (out []Record) {
	t.Helper()
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	err := Decode(h, func(r Record) error {
		if r.Offset >= from && !r.Phantom {
			out = append(out, r.clone())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is left of a batch from an offset on is to readers what it was, whichever clock
// and cleaner had a part in it.
func TestTail(t *testing.T) {
	for attributes := range int16(16) {
		for codec := None; codec <= Zstd; codec++ {
			s := Spec{
				Base: 100, Next: 112, LeaderEpoch: 3, Codec: codec, Producer: &Producer{ID: 9, Epoch: 1, Sequence: 1<<31 - 3},
				Timestamp: 1_700_086_400_000, AppendTime: 1_700_000_005_555,
			}
			for i, bit := range []int16{AttrLogAppendTime, AttrDeleteHorizon, AttrTransactional} {
				if attributes&(1<<i) != 0 {
					s.Attributes |= bit
				}
			}
			for i := range 10 {
				if attributes&8 != 0 && i%3 == 1 {
					continue // compacted
				}
				s.Records = append(s.Records, Record{Offset: 100 + int64(i), Timestamp: 1_700_000_000_000 + int64(i), Key: fmt.Append(nil, i), Value: []byte{}})
			}
			h := Header(Encode(s))
			before := bytes.Clone(h)
			for from := h.Base(); from < h.Next(); from++ {
				b, err := Tail(h, from)
				if err != nil {
					t.Fatal(err)
				}
				tail := Header(b)
				if diff := cmp.Diff(seenFrom(t, h, from), seenFrom(t, tail, 0)); diff != "" {
					t.Fatalf("attributes %#x from %d (-want +got):\n%s", s.Attributes, from, diff)
				}
				if tail.Base() != from || tail.Next() != h.Next() || tail.Attributes() != h.Attributes() || tail.LeaderEpoch() != 3 || tail.ProducerID() != 9 {
					t.Fatalf("attributes %#x from %d: header [%d,%d) %#x", s.Attributes, from, tail.Base(), tail.Next(), tail.Attributes())
				}
			}
			if !bytes.Equal(h, before) {
				t.Fatal("the batch was written to")
			}
		}
	}
}
