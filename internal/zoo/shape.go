package zoo

import (
	"fmt"
	"math"

	"github.com/clustermirror/mirror/internal/batch"
)

// records are consecutive ones from the log end on, and what is odd about them.
func (g *generator) records() ([]batch.Record, string) {
	n, says := 1+g.r.IntN(12), ""
	switch g.r.IntN(12) {
	case 0:
		n, says = 1, "one record"
	case 1:
		n, says = 200+g.r.IntN(300), "many records"
	}
	times, how := g.times()
	rs := make([]batch.Record, n)
	for i := range rs {
		rs[i] = batch.Record{Offset: g.at + int64(i), Timestamp: times(i), Key: g.key(), Value: g.value(), Headers: g.headers()}
		if rs[i].Key == nil && g.o.Keyed {
			rs[i].Key = []byte("null")
		}
	}
	if n < 50 && g.chance(15) {
		rs[g.r.IntN(n)].Value = g.noise(g.o.MaxValue)
		how += ", a large value"
	}
	return rs, fmt.Sprintf("%d records%s%s", n, comma(says), comma(how))
}

func comma(s string) string {
	if s == "" {
		return ""
	}
	return ", " + s
}

const (
	day     = 86_400_000
	century = 100 * 365 * day
)

// times chooses how the timestamps of a batch go.
func (g *generator) times() (func(i int) int64, string) {
	now, kind := g.now, g.r.IntN(12)
	if g.o.Tame {
		kind = -1
	}
	switch kind {
	case 0:
		return func(int) int64 { return -1 }, "no timestamps"
	case 1:
		return func(int) int64 { return 0 }, "timestamps of 1970"
	case 2:
		return func(i int) int64 { return now + century + int64(i) }, "of the future"
	case 3:
		return func(i int) int64 { return now - int64(i%3)*30*day }, "more than 24.8 days apart"
	case 4:
		return func(i int) int64 { return int64(i%2) * now }, "of 1970 and of now"
	case 5:
		return func(i int) int64 { return now - int64(i) }, "descending"
	case 6:
		return func(i int) int64 { return int64(i%2) * (math.MaxInt64 / 4) }, "as far apart as it goes"
	}
	return func(i int) int64 { return now + int64(i/3) }, ""
}

// key is null, empty, text, or bytes that are no text.
func (g *generator) key() []byte {
	switch g.r.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte{0xff, 0, 0xfe, byte(g.r.IntN(256))}
	}
	return fmt.Appendf(nil, "key-%d", g.r.IntN(500))
}

// value is a tombstone, empty, text that compresses, or noise that does not.
func (g *generator) value() []byte {
	switch g.r.IntN(10) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return g.noise(300)
	}
	return fmt.Appendf(nil, `{"n":%d,"text":"the same words again and again, the same words again"}`, g.r.IntN(1000))
}

func (g *generator) noise(most int) []byte {
	b := make([]byte, most/2+g.r.IntN(most/2+1))
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	return b
}

// headers may repeat a key, have null and empty values, and an empty key.
func (g *generator) headers() []batch.RecordHeader {
	if !g.chance(3) {
		return nil
	}
	out := make([]batch.RecordHeader, 1+g.r.IntN(4))
	for i := range out {
		out[i] = batch.RecordHeader{Key: []byte([]string{"a", "b", "trace", ""}[g.r.IntN(4)]), Value: g.key()}
	}
	return out
}
