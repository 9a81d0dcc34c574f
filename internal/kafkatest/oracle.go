package kafkatest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// AllPartitions as ConsumeSpec.Partition means every partition of the topic.
const AllPartitions = -1

// ConsumeSpec says what a foreign consumer is to read.
type ConsumeSpec struct {
	Topic string
	// Partition is one partition or AllPartitions.
	Partition int32
	// From is the first offset; with AllPartitions it must be 0, which means
	// the log start of each.
	From int64
	// Max ends the read after so many records. Default: 0, read to the end
	// that the partitions have at the call.
	Max int
	// Committed reads with isolation level read_committed, otherwise
	// read_uncommitted.
	Committed bool
}

func (s ConsumeSpec) validate() error {
	if s.Partition == AllPartitions && s.From != 0 {
		return fmt.Errorf("kafkatest: consuming all partitions from offset %d", s.From)
	}
	return nil
}

func (s ConsumeSpec) isolation() string {
	if s.Committed {
		return "read_committed"
	}
	return "read_uncommitted"
}

// Line is one record as a foreign consumer shows it, comparable with ==. Bytes
// outside printable ASCII, and backslashes, appear as \xNN in the key, the
// value and the values of headers; null is [Null] and differs from empty.
type Line struct {
	Partition int32
	Offset    int64
	// Time is "CreateTime:" or "LogAppendTime:" and milliseconds; kcat shows
	// the number alone.
	Time    string
	Headers string // "name:value,name:value", as the consumer prints them
	Key     string
	Value   string
}

// Null stands for a null key, value or header value in a [Line].
const Null = "(null)"

// String is one line of text without its end.
func (l Line) String() string {
	return fmt.Sprintf("%d/%d %s [%s] %s = %s", l.Partition, l.Offset, l.Time, l.Headers, l.Key, l.Value)
}

// sortLines orders by partition and offset. The sort is stable so that a
// record delivered twice stays visible as it came.
func sortLines(lines []Line) {
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
}

// escape renders bytes like Kafka's Bytes.toString.
func escape(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		if c >= ' ' && c <= '~' && c != '\\' {
			s.WriteByte(c)
		} else {
			fmt.Fprintf(&s, "\\x%02X", c)
		}
	}
	return s.String()
}

// progress tells when everything up to the ends has been seen.
type progress struct {
	ends []int64 // by partition; -1 or 0 where nothing is expected
	left int     // partitions with records to come
}

func newProgress(starts, ends []int64, s ConsumeSpec) *progress {
	p := &progress{ends: make([]int64, len(ends))}
	for i := range ends {
		from := max(starts[i], s.From)
		if (s.Partition == AllPartitions || int(s.Partition) == i) && from < ends[i] {
			p.ends[i] = ends[i]
			p.left++
		}
	}
	return p
}

// see notes a record and says whether all partitions have been read to the end.
func (p *progress) see(partition int32, offset int64) bool {
	if int(partition) < len(p.ends) && p.ends[partition] > 0 && offset >= p.ends[partition]-1 {
		p.ends[partition] = 0
		p.left--
	}
	return p.left == 0
}
