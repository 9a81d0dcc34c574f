package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math/bits"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// Sum is a number of 256 bits, most significant byte first: the sum, modulo 2^256,
// of one SHA-256 for each record. A record is hashed as
//
//	offset      8 bytes, big endian, as all that follows
//	timestamp   8 bytes, as consumers see it (log append time, if it is that)
//	key         4 bytes length (-1: null), and the bytes
//	value       the same
//	headers     4 bytes count, and for each key and value as above
//
// Records count that readers of committed records see: neither control batches, nor
// what was aborted or is undecided, nor what fills offsets. So batches, compression,
// message formats, producers and epochs change nothing, and neither does the order
// of the additions: the sum of [a,c) is that of [a,b) plus that of [b,c).
type Sum [sha256.Size]byte

// Add is the sum of both.
func (s Sum) Add(o Sum) Sum {
	carry := uint64(0)
	for i := len(s) - 8; i >= 0; i -= 8 {
		var v uint64
		v, carry = bits.Add64(binary.BigEndian.Uint64(s[i:]), binary.BigEndian.Uint64(o[i:]), carry)
		binary.BigEndian.PutUint64(s[i:], v)
	}
	return s
}

// String is in hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes the form of String.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads the form of String.
func (s *Sum) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(s) {
		return fmt.Errorf("sum %q is not %d bytes in hexadecimal digits", text, len(s))
	}
	copy(s[:], b)
	return nil
}

// Checksum stands for the records of a span of a partition. Two of the same span
// (and the same sample) are equal exactly when the records are, on whatever cluster
// and whenever they were made, as long as nothing was Undecided or deleted.
type Checksum struct {
	Span    cluster.Span `json:"span"`
	Records int64        `json:"records"`
	Sum     Sum          `json:"sum"`
	// Undecided records were left out: their transactions had no marker yet.
	Undecided int64 `json:"undecided,omitempty"`
}

// Join is the checksum of two spans of which the second begins where the first ends.
func (c Checksum) Join(next Checksum) (Checksum, error) {
	if c.Span.To != next.Span.From {
		return Checksum{}, fmt.Errorf("%v does not begin where %v ends", next.Span, c.Span)
	}
	return Checksum{
		Span: cluster.Span{From: c.Span.From, To: next.Span.To}, Records: c.Records + next.Records,
		Sum: c.Sum.Add(next.Sum), Undecided: c.Undecided + next.Undecided,
	}, nil
}

// summing adds the records of one side up.
type summing struct {
	hash hash.Hash
	head []byte
	one  Sum

	sum     Sum
	records int64
}

// of hashes a record.
func (s *summing) of(r *batch.Record) Sum {
	be := binary.BigEndian
	b := be.AppendUint64(s.head[:0], uint64(r.Offset))
	b = be.AppendUint64(b, uint64(r.Timestamp))
	b = s.bytes(b, r.Key)
	b = s.bytes(b, r.Value)
	b = be.AppendUint32(b, uint32(len(r.Headers)))
	for _, h := range r.Headers {
		b = be.AppendUint32(b, uint32(len(h.Key)))
		b = append(b, h.Key...)
		b = s.bytes(b, h.Value)
	}
	s.hash.Write(b)
	s.head = b
	s.hash.Sum(s.one[:0])
	s.hash.Reset()
	return s.one
}

// long values are hashed where they are.
const long = 1 << 10

func (s *summing) bytes(b, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(b, 1<<32-1)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
	if len(v) < long {
		return append(b, v...)
	}
	s.hash.Write(b)
	s.hash.Write(v)
	return b[:0]
}

// add counts a record's hash, now or when its transaction is committed.
func (s *summing) add(one Sum, t *transaction) {
	if t != nil {
		t.sum, t.n = t.sum.Add(one), t.n+1
		return
	}
	s.sum, s.records = s.sum.Add(one), s.records+1
}

// ended counts a transaction that came to an end.
func (s *summing) ended(t *transaction) {
	if t != nil && t.fate == committed {
		s.sum, s.records = s.sum.Add(t.sum), s.records+t.n
	}
}

func newSumming() *summing { return &summing{hash: sha256.New()} }
