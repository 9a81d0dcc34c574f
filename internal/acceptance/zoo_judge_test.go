package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo/live"
)

// families are the clients that read both sides. Two are known not to see what the
// others see; the tests say so where it is so.
var families = []string{"java", "librdkafka", "franz-go", "kafka-go", "sarama"}

// audience reads topics with clients of others, as readers of committed records.
type audience struct {
	program  string // of package clients
	patience time.Duration
}

// invite builds the program that holds the clients written in Go.
func invite(t *testing.T) *audience {
	t.Helper()
	a := &audience{program: filepath.Join(t.TempDir(), "clients"), patience: 20 * time.Second}
	if out, err := exec.Command("go", "build", "-o", a.program, "github.com/clustermirror/mirror/internal/clients").CombinedOutput(); err != nil {
		t.Fatalf("building the clients: %v\n%s", err, out)
	}
	return a
}

// part is what is to be read of a topic: all up to the last record of each partition,
// so many in all.
type part struct {
	topic string
	last  map[int32]int64
	n     int
}

// parted counts what one reader saw, for the others.
func parted(topic string, lines []kafkatest.Line) part {
	p := part{topic: topic, last: map[int32]int64{}, n: len(lines)}
	for _, l := range lines {
		p.last[l.Partition] = l.Offset
	}
	return p
}

// sees reads a topic with one family of clients. The timestamps are numbers.
func (a *audience) sees(t *testing.T, family string, c *kafkatest.Cluster, p part) ([]kafkatest.Line, error) {
	t.Helper()
	spec := kafkatest.ConsumeSpec{Topic: p.topic, Partition: kafkatest.AllPartitions, Committed: true}
	switch family {
	case "java":
		spec.Max = p.n // else it waits where the last offsets have no record
		lines := c.JavaConsume(timeout(t, time.Minute), t, spec)
		for i := range lines {
			_, lines[i].Time, _ = strings.Cut(lines[i].Time, ":")
		}
		return lines, nil
	case "librdkafka":
		return c.KcatConsume(timeout(t, time.Minute), t, spec), nil
	}
	var wants []string
	for partition, last := range p.last {
		wants = append(wants, fmt.Sprintf("%s/%d/%d", p.topic, partition, last))
	}
	slices.Sort(wants)
	cmd := exec.CommandContext(t.Context(), a.program, "-family", family, "-brokers", strings.Join(c.Bootstrap(), ","), "-read", strings.Join(wants, ","), "-patience", a.patience.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return parseSeen(t, out), err
}

func parseSeen(t *testing.T, out []byte) (lines []kafkatest.Line) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var r struct {
			Partition           int32
			Offset, Timestamp   int64
			Key, Value, Headers string
		}
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, kafkatest.Line{
			Partition: r.Partition, Offset: r.Offset, Time: fmt.Sprint(r.Timestamp), Headers: r.Headers, Key: r.Key, Value: r.Value,
		})
	}
	return lines
}

// knows that what a reader saw of the source is what its producers wrote, where that is
// known.
func knows(t *testing.T, topic live.Topic, lines []kafkatest.Line) {
	t.Helper()
	for partition, l := range topic.Truth {
		var want, got []string
		for _, r := range l.Visible(true) {
			want = append(want, fmt.Sprint(r.Offset, " ", r.Timestamp, " ", shown(r.Key), " ", shown(r.Value), " ", headers(r.Headers)))
		}
		for _, l := range lines {
			if l.Partition == partition {
				got = append(got, fmt.Sprint(l.Offset, " ", l.Time, " ", l.Key, " ", l.Value, " ", l.Headers))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s-%d: not what was written (-want +got):\n%.2000s", topic.Name, partition, diff)
		}
	}
}

// shown is as kcat's lines show it.
func shown(b []byte) string {
	if b == nil {
		return kafkatest.Null
	}
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

func headers(hs []batch.RecordHeader) string {
	var out []string
	for _, h := range hs {
		v := "NULL"
		if h.Value != nil {
			v, _, _ = strings.Cut(shown(h.Value), `\x00`) // kcat shows them as texts of C
		}
		out = append(out, string(h.Key)+"="+v)
	}
	return strings.Join(out, ",")
}

// places are the offsets of records, by partition.
func places(lines []kafkatest.Line) map[string]bool {
	out := map[string]bool{}
	for _, l := range lines {
		out[fmt.Sprint(l.Partition, "/", l.Offset)] = true
	}
	return out
}

// only leaves the lines at known places, and counts the others.
func only(lines []kafkatest.Line, known map[string]bool) (out []kafkatest.Line, others int) {
	for _, l := range lines {
		if known[fmt.Sprint(l.Partition, "/", l.Offset)] {
			out = append(out, l)
		} else {
			others++
		}
	}
	return out, others
}

// agree compares what one family saw of both sides, and of the source with what others
// saw. It answers how many records it showed that are none, at the source and at the
// destination: control records, to those who know them not.
func agree(t *testing.T, family string, known map[string]bool, source, destination []kafkatest.Line) (atSource, atDestination int) {
	t.Helper()
	source, atSource = only(source, known)
	destination, atDestination = only(destination, known)
	if len(source) != len(known) {
		t.Errorf("%s shows %d records of the source, others show %d", family, len(source), len(known))
	}
	if diff := cmp.Diff(source, destination); diff != "" {
		t.Errorf("%s sees other records at the destination (-source +destination):\n%.3000s", family, diff)
	}
	return atSource, atDestination
}
