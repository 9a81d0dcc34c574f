package verify

import (
	"fmt"

	"github.com/clustermirror/mirror/internal/batch"
)

// note counts what no consumer is misled by; a strict comparison takes it for a
// difference.
func (c *comparison) note(d Difference) {
	if c.options.Strict {
		c.add(d)
		return
	}
	c.report.Noted++
	c.report.Notes = insert(c.report.Notes, d, c.options.Differences)
}

// noteEnds tells where the logs begin and end differently.
func (c *comparison) noteEnds() {
	s, d := c.report.Source, c.report.Destination
	if s.LogStart != d.LogStart {
		c.note(Difference{min(s.LogStart, d.LogStart), LogStart, fmt.Sprint(s.LogStart), fmt.Sprint(d.LogStart)})
	}
	if s.HighWatermark != d.HighWatermark {
		c.note(Difference{min(s.HighWatermark, d.HighWatermark), LogEnd, fmt.Sprint(s.HighWatermark), fmt.Sprint(d.HighWatermark)})
	}
}

// noteStructure tells how two records of one offset are kept differently.
func (c *comparison) noteStructure() {
	s, d := c.source, c.destination
	at := s.record.Offset
	if a, b := s.stamped(), d.stamped(); a != b {
		c.note(Difference{at, TimestampType, timestampType(a), timestampType(b)})
	}
	if s.first != d.first {
		c.note(Difference{at, Bounds, bounds(s.first), bounds(d.first)})
	}
	if a, b := s.codec(), d.codec(); a != b && (s.first || d.first) {
		c.note(Difference{at, Codec, a.String(), b.String()})
	}
	if a, b := s.in != nil, d.in != nil; a != b && (s.first || d.first) {
		c.note(Difference{at, Transactional, transactional(a), transactional(b)})
	}
}

// timestampType is Kafka's name of message.timestamp.type.
func timestampType(stamped bool) string {
	if stamped {
		return "LogAppendTime"
	}
	return "CreateTime"
}

func bounds(first bool) string {
	if first {
		return "a batch begins"
	}
	return "inside of a batch"
}

func transactional(is bool) string {
	if is {
		return "in a transaction"
	}
	return "in none"
}

func renderMalformed(h batch.Header) string {
	return fmt.Sprintf("a batch of %d records says that it ends with offset %d, but has records behind it", h.Count(), h.Next()-1)
}
