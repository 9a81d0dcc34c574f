package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// told is a record as a client tells of it.
type told struct {
	Offset int64
	Value  string
}

// listener is a consumer of somebody else in a process of its own, a member of a group.
type listener struct {
	t       *testing.T
	family  string
	group   string
	enter   func() *kafkatest.Process
	process *kafkatest.Process
	lines   int              // of the process, looked at
	saw     map[int32][]told // in the order in which they came
	remarks []string
}

// crowd is a member of each family of clients, each in a group of its own.
type crowd struct {
	t       *testing.T
	c       *kafkatest.Cluster
	topic   string
	members []*listener
}

// gather has the members begin at the first record. Before 4.0 there are no groups of KIP-848.
func gather(t *testing.T, c *kafkatest.Cluster, a *audience, topic, prefix string) *crowd {
	t.Helper()
	all := &crowd{t: t, c: c, topic: topic}
	for _, family := range []string{"java", "java-848", "librdkafka", "franz-go", "kafka-go"} {
		if family == "java-848" && !strings.HasPrefix(c.Version(), "4.") {
			continue
		}
		group := prefix + family
		l := &listener{t: t, family: family, group: group, saw: map[int32][]told{}, enter: entrance(t, c, a, family, topic, group)}
		l.process = l.enter()
		all.members = append(all.members, l)
	}
	return all
}

// entrance starts a member of a group that commits by itself, five times a second.
func entrance(t *testing.T, c *kafkatest.Cluster, a *audience, family, topic, group string) func() *kafkatest.Process {
	java := func(protocol string) *kafkatest.Process {
		return c.JavaProgram(t.Context(), t, "VerifiableConsumer",
			map[string]string{"auto.commit.interval.ms": "200", "isolation.level": "read_committed"},
			"--topic", topic, "--group-id", group, "--group-protocol", protocol, "--enable-autocommit", "--reset-policy", "earliest", "--verbose")
	}
	switch family {
	case "java":
		return func() *kafkatest.Process { return java("CLASSIC") }
	case "java-848":
		return func() *kafkatest.Process { return java("CONSUMER") }
	case "librdkafka":
		return func() *kafkatest.Process {
			return c.Kcat(t, "-G", group, "-J", "-u", "-E", "-X", "auto.offset.reset=earliest", "-X", "isolation.level=read_committed",
				"-X", "check.crcs=true", "-X", "auto.commit.interval.ms=200", topic)
		}
	}
	return func() *kafkatest.Process {
		return kafkatest.Spawn(t, a.program, "-family", family, "-brokers", strings.Join(c.Bootstrap(), ","), "-group", group, "-topic", topic)
	}
}

// hear takes what the member has printed since the last time.
func (l *listener) hear() {
	all := l.process.Lines()
	for _, line := range all[l.lines:] {
		var r struct {
			Name           string // of Java's events
			Partition      int32
			Offset         *int64
			Value, Payload string
		}
		if json.Unmarshal([]byte(line), &r) != nil || r.Offset == nil {
			l.remarks = append(l.remarks, line)
			continue
		}
		l.saw[r.Partition] = append(l.saw[r.Partition], told{*r.Offset, r.Value + r.Payload})
	}
	l.lines = len(all)
}

// upTo says whether the member has come to where the partitions end.
func (l *listener) upTo(ends []int64) error {
	l.hear()
	for p, end := range ends {
		saw := l.saw[int32(p)]
		if end > 0 && (len(saw) == 0 || saw[len(saw)-1].Offset < end-1) {
			return fmt.Errorf("%s has shown %d records of partition %d, not up to %d; it said %q", l.family, len(saw), p, end, tail(l.remarks, 3))
		}
	}
	return nil
}

func tail[T any](of []T, n int) []T { return of[max(0, len(of)-n):] }

// each does something with all members, one after the other.
func (a *crowd) each(do func(*listener)) {
	for _, l := range a.members {
		do(l)
	}
}

// hear waits until all members have read to the present end of the topic.
func (a *crowd) hear(what string) {
	a.t.Helper()
	ends, began := a.c.Ends(a.t.Context(), a.t, a.topic), time.Now()
	kafkatest.Eventually(a.t, sized(time.Minute, 2*time.Minute), func(context.Context) (err error) {
		for _, l := range a.members {
			err = errors.Join(err, l.upTo(ends))
		}
		return err
	})
	a.t.Logf("%s: all have read to %v after %v", what, ends, time.Since(began).Round(time.Millisecond))
}

// leave ends a member in order: it commits what it has shown, and the group is empty.
func (l *listener) leave() {
	l.t.Helper()
	l.process.Signal(syscall.SIGTERM)
	if err := l.process.Wait(timeout(l.t, time.Minute)); err != nil && !strings.Contains(err.Error(), "143") { // Java's exit code then
		l.t.Errorf("%s: %v", l.family, err)
	}
	l.hear()
}

// again has a member of the same group take the place of one that has ended.
func (l *listener) again() { l.process, l.lines = l.enter(), 0 }

// die ends a member at once, and forgets what it has shown beyond what it had committed:
// who takes its place reads that again, and nothing else.
func (l *listener) die(c *kafkatest.Cluster, topic string) {
	l.t.Helper()
	l.process.Kill()
	l.hear()
	end := connect(l.t, c)
	wait(l.t, time.Second) // a commit may be on its way
	for p, saw := range l.saw {
		at, err := committed(l.t.Context(), end, l.group, topic, p)
		if err != nil {
			l.t.Fatal(err)
		}
		n := len(saw)
		for n > 0 && saw[n-1].Offset >= at {
			n--
		}
		if next := saw[len(saw)-1].Offset + 1; at > next {
			l.t.Errorf("%s: %d is committed in partition %d, shown was what is before %d", l.family, at, p, next)
		}
		l.saw[p] = saw[:n]
	}
}

// heard compares what each member has read, over all its lives, with the log: each record
// once and in order. Where a member was killed it may have read again from what it had
// committed then.
func (a *crowd) heard(truth map[int32][]told) {
	a.t.Helper()
	for _, l := range a.members {
		l.hear()
		total := 0
		for p, want := range truth {
			total += len(want)
			if diff := parts(want, l.saw[p]); diff != "" {
				a.t.Errorf("%s: partition %d: %s; it said %q", l.family, p, diff, l.remarks)
			}
		}
		a.t.Logf("%s: %d records, each once and in order", l.family, total)
	}
}

// parts says where what was read begins to differ from what there is.
func parts(want, got []told) string {
	n := 0
	for n < min(len(want), len(got)) && want[n] == got[n] {
		n++
	}
	if n == len(want) && n == len(got) {
		return ""
	}
	return fmt.Sprintf("record %d: read were %.200q, the log has %.200q (%d and %d records in all)", n,
		fmt.Sprint(got[n:min(n+3, len(got))]), fmt.Sprint(want[n:min(n+3, len(want))]), len(got), len(want))
}

// sharer is a member of a share group, which Kafka has since 4.2: it has no leader to read
// from as long as we are it.
func sharer(t *testing.T, c *kafkatest.Cluster, topic, group string) *listener {
	t.Helper()
	l := &listener{t: t, family: "java-share", group: group, saw: map[int32][]told{}, enter: func() *kafkatest.Process {
		return c.JavaProgram(t.Context(), t, "VerifiableShareConsumer", nil, "--topic", topic, "--group-id", group, "--verbose", "--offset-reset-strategy", "earliest")
	}}
	l.process = l.enter()
	return l
}

// everything waits until the member has seen each record of a log, in whatever order.
func (l *listener) everything(what string, log map[int32][]told) {
	l.t.Helper()
	kafkatest.Eventually(l.t, time.Minute, func(context.Context) error {
		l.hear()
		for p, want := range log {
			saw := map[told]bool{}
			for _, r := range l.saw[p] {
				saw[r] = true
			}
			for _, r := range want {
				if !saw[r] {
					return fmt.Errorf("%s: %s has not shown %v of partition %d (%d of %d records); it said %q", what, l.family, r, p, len(saw), len(want), tail(l.remarks, 3))
				}
			}
		}
		return nil
	})
}

// standing is what the log has now.
func standing(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32) map[int32][]told {
	t.Helper()
	ends, from := c.Ends(t.Context(), t, topic), map[int32]kgo.Offset{}
	for p := range partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	cl := c.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer cl.Close()
	out := map[int32][]told{}
	for missing := func() bool {
		for p, end := range ends {
			of := out[int32(p)]
			if end > 0 && (len(of) == 0 || of[len(of)-1].Offset < end-1) {
				return true
			}
		}
		return false
	}; missing(); {
		fetches := cl.PollFetches(timeout(t, time.Minute))
		if err := fetches.Err0(); err != nil {
			t.Fatalf("reading %s up to %v: %v", topic, ends, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out[r.Partition] = append(out[r.Partition], told{r.Offset, string(r.Value)}) })
	}
	return out
}
