package batch

import "strconv"

// Codec is how a batch's records are compressed, in the numbers of the
// attributes' lowest three bits.
type Codec int8

// The codecs of Kafka.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is Kafka's own name of the codec (compression.type).
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "codec " + strconv.Itoa(int(c))
}
