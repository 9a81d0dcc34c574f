package verify

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/mirror/internal/batch"
)

// Kind says in what two records differ.
type Kind string

// The kinds of differences.
const (
	Missing   Kind = "missing"   // the source has a record at the offset, the destination none
	Extra     Kind = "extra"     // the destination has one (or one more), the source none
	Timestamp Kind = "timestamp" // the record's timestamp
	Key       Kind = "key"
	Value     Kind = "value"
	Headers   Kind = "headers"   // keys, values or order of the record headers
	Hidden    Kind = "hidden"    // committed at the source; at the destination aborted, or without a marker
	Exposed   Kind = "exposed"   // never committed at the source; at the destination visible to all
	Malformed Kind = "malformed" // one side's batch has records behind its own end
)

// The kinds of notes, which are differences only where Options.Strict says so.
const (
	LogStart      Kind = "log start"
	LogEnd        Kind = "log end"
	Bounds        Kind = "batch bounds"
	Codec         Kind = "codec"
	TimestampType Kind = "timestamp type"
	Transactional Kind = "transaction"     // one side has the record in a transaction
	AbortedGone   Kind = "aborted records" // the source's, which the destination left out
)

// ofRecord: a difference by which records may have moved.
func (k Kind) ofRecord() bool {
	switch k {
	case Missing, Extra, Timestamp, Key, Value, Headers:
		return true
	}
	return false
}

// Difference is one difference at one offset. Source and Destination are short
// renderings for a person; long values are shown around the first byte that
// differs.
type Difference struct {
	Offset      int64  `json:"offset"`
	Kind        Kind   `json:"kind"`
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination,omitempty"`
}

// String is one line for a person.
func (d Difference) String() string {
	switch d.Kind {
	case Missing:
		if d.Source == "" {
			return fmt.Sprintf("offset %d: missing in the destination; the source's transaction is committed", d.Offset)
		}
		return fmt.Sprintf("offset %d: missing in the destination; source has %s", d.Offset, d.Source)
	case Extra:
		return fmt.Sprintf("offset %d: extra in the destination: %s", d.Offset, d.Destination)
	case Hidden:
		return fmt.Sprintf("offset %d: committed at the source, not committed in the destination", d.Offset)
	case Exposed:
		return fmt.Sprintf("offset %d: not committed at the source, visible in the destination", d.Offset)
	case AbortedGone:
		return fmt.Sprintf("offset %d: aborted at the source, not there in the destination", d.Offset)
	case Malformed:
		if d.Source != "" {
			return fmt.Sprintf("offset %d: malformed at the source: %s", d.Offset, d.Source)
		}
		return fmt.Sprintf("offset %d: malformed in the destination: %s", d.Offset, d.Destination)
	case Headers:
		return fmt.Sprintf("offset %d: headers differ: source %s, destination %s", d.Offset, d.Source, d.Destination)
	}
	return fmt.Sprintf("offset %d: %s differs: source %s, destination %s", d.Offset, d.Kind, d.Source, d.Destination)
}

// same compares as Kafka does: null is not empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameHeaders(a, b []batch.RecordHeader) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Key, b[i].Key) || !same(a[i].Value, b[i].Value) {
			return false
		}
	}
	return true
}

// differences calls add for all that two records of one offset differ in.
func differences(s, d batch.Record, add func(Difference)) {
	if s.Timestamp != d.Timestamp {
		add(Difference{s.Offset, Timestamp, renderTime(s.Timestamp), renderTime(d.Timestamp)})
	}
	if !same(s.Key, d.Key) {
		add(Difference{s.Offset, Key, render(s.Key, d.Key), render(d.Key, s.Key)})
	}
	if !same(s.Value, d.Value) {
		add(Difference{s.Offset, Value, render(s.Value, d.Value), render(d.Value, s.Value)})
	}
	if !sameHeaders(s.Headers, d.Headers) {
		a, b := renderHeaders(s.Headers), renderHeaders(d.Headers)
		add(Difference{s.Offset, Headers, abridge(a, b), abridge(b, a)})
	}
}

const (
	shown  = 40 // bytes of a rendering at most
	before = 8  // of them before the first difference
)

// render shows b where it begins to differ from other.
func render(b, other []byte) string {
	if b == nil {
		return "null"
	}
	at := 0
	for at < len(b) && at < len(other) && b[at] == other[at] {
		at++
	}
	if at = max(0, at-before); at < shown-before {
		at = 0
	}
	piece := b[at:min(len(b), at+shown)]
	if len(piece) == len(b) {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%q from byte %d of %d", piece, at, len(b))
}

func renderHeaders(hs []batch.RecordHeader) string {
	parts := make([]string, len(hs))
	for i, h := range hs {
		parts[i] = fmt.Sprintf("%q=null", h.Key)
		if h.Value != nil {
			parts[i] = fmt.Sprintf("%q=%q", h.Key, h.Value)
		}
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// abridge cuts a long rendering around the place where it differs from other.
func abridge(s, other string) string {
	const most = 2 * shown
	if len(s) <= most {
		return s
	}
	at := 0
	for at < len(s) && at < len(other) && s[at] == other[at] {
		at++
	}
	at = min(max(0, at-before), len(s)-most)
	out := strings.ToValidUTF8(s[at:at+most], "")
	if at > 0 {
		out = "..." + out
	}
	if at+most < len(s) {
		out += "..."
	}
	return out
}

func renderTime(ms int64) string {
	return fmt.Sprintf("%d (%s)", ms, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"))
}

// renderRecord shows a record that has no other side.
func renderRecord(r batch.Record) string {
	return fmt.Sprintf("key %s, value %s, timestamp %s", render(r.Key, nil), render(r.Value, nil), renderTime(r.Timestamp))
}
