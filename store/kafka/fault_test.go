package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func mustSave(t testing.TB, s *Store, records ...coordinator.Record) {
	t.Helper()
	if err := errors.Join(s.Save(t.Context(), raceMirror, records)...); err != nil {
		t.Fatal(err)
	}
}

func mustLoad(t testing.TB, s *Store) []coordinator.Record {
	t.Helper()
	records, err := s.Load(t.Context(), raceMirror)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// through makes connections go over a network with faults.
func through(n *kafkatest.Network) func(*Config) { return func(c *Config) { c.Dial = n.Dial } }

// noise is text that does not compress.
func noise(bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		fmt.Fprintf(&b, "%x", rand.Uint64())
	}
	return b.String()
}

// TestLostAnswer: a write whose answer is lost is found by reading, and made once.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	f, n := fake(t, 1), kafkatest.NewNetwork(t)
	topic := unique()
	s := openAt(t, f.ListenAddrs(), topic, through(n))
	mustSave(t, s, record("t", 0, 1))
	for epoch := int32(2); epoch < 5; epoch++ {
		r := record("t", 0, epoch)
		r.Reason = noise(8 << 10)
		shot := n.Link(f.ListenAddrs()[0]).CutBeforeAnswer(4 << 10)
		mustSave(t, s, r)
		select {
		case <-shot.Done():
		default:
			t.Fatal("no answer was lost")
		}
		if diff := cmp.Diff([]coordinator.Record{r}, mustLoad(t, openAt(t, f.ListenAddrs(), topic))); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	}
}

// TestLateWriter: a process that was frozen between deciding and writing writes, in the
// end, and changes nothing: for itself, for those who were there, and for those who come
// when compaction has run.
func TestLateWriter(t *testing.T) {
	t.Parallel()
	f, n := fake(t, 1), kafkatest.NewNetwork(t)
	topic := unique()
	late, other := openAt(t, f.ListenAddrs(), topic, through(n)), openAt(t, f.ListenAddrs(), topic)
	mustSave(t, late, record("t", 0, 1))
	mustLoad(t, other)
	link := n.Link(f.ListenAddrs()[0])
	before := link.Bytes(kafkatest.Write)
	link.Blackhole(true)
	answer := make(chan []error)
	go func() { answer <- late.Save(t.Context(), raceMirror, []coordinator.Record{record("t", 0, 2)}) }()
	kafkatest.Eventually(t, 10*time.Second, func(context.Context) error {
		if link.Bytes(kafkatest.Write) < before+500 {
			return errors.New("nothing written yet")
		}
		return nil
	})
	winner := record("t", 0, 2)
	winner.Reason = "winner"
	mustSave(t, other, winner)
	link.Blackhole(false)
	if errs := <-answer; !errors.Is(errs[0], coordinator.ErrConflict) {
		t.Errorf("the late writer hears %v", errs[0])
	}
	f.Compact()
	for name, s := range map[string]*Store{"late": late, "other": other, "new": openAt(t, f.ListenAddrs(), topic)} {
		if diff := cmp.Diff([]coordinator.Record{winner}, mustLoad(t, s)); diff != "" {
			t.Errorf("%s store (-want +got):\n%s", name, diff)
		}
	}
	home := PartitionOf(raceMirror, winner.Partition, 8)
	if n := deadIn(late, home); n != 1 {
		t.Errorf("%d values that lost are known, want 1", n)
	}
	winner.StateEpoch++
	mustSave(t, late, winner) // and cleans up
	if n := deadIn(late, home); n != 0 {
		t.Errorf("%d values that lost are left", n)
	}
}

func deadIn(s *Store, n int32) int {
	s.tail.mu.Lock()
	defer s.tail.mu.Unlock()
	return len(s.tail.view.parts[n].dead)
}

// TestUnreachable: every method says so, and soon.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := openAt(t, []string{l.Addr().String()}, unique(), func(c *Config) { c.RequestTimeout = time.Second })
	for name, call := range map[string]func() error{
		"load":   func() error { _, err := s.Load(t.Context(), "m"); return err },
		"save":   func() error { return s.Save(t.Context(), "m", []coordinator.Record{record("t", 0, 1)})[0] },
		"delete": func() error { return s.Delete(t.Context(), "m", []cluster.Partition{{Topic: "t"}}) },
		"intents": func() error {
			_, err := s.SaveIntents(t.Context(), "m", []coordinator.Intent{{Topic: "t"}})
			return err
		},
		"watch":       func() error { _, err := s.Watch(t.Context(), "m"); return err },
		"definitions": func() error { _, err := s.Definitions(t.Context()); return err },
		"define":      func() error { return s.Define(t.Context(), coordinator.Definition{Name: "m", Revision: 1}) },
		"undefine":    func() error { return s.Undefine(t.Context(), "m") },
		"positions":   func() error { _, err := s.Positions(t.Context(), "x", nil); return err },
	} {
		start := time.Now()
		if err := call(); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 8*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// TestLostCluster: the cluster goes away while it is in use, and comes back.
func TestLostCluster(t *testing.T) {
	t.Parallel()
	f, n := fake(t, 1), kafkatest.NewNetwork(t)
	s := openAt(t, f.ListenAddrs(), unique(), through(n))
	mustSave(t, s, record("t", 0, 1))
	watched, err := s.Watch(t.Context(), raceMirror)
	if err != nil {
		t.Fatal(err)
	}
	<-watched
	link := n.Link(f.ListenAddrs()[0])
	link.Refuse(true)
	link.Cut()
	for name, call := range map[string]func(context.Context) error{
		"save": func(ctx context.Context) error {
			return s.Save(ctx, raceMirror, []coordinator.Record{record("t", 0, 2)})[0]
		},
		"load": func(ctx context.Context) error { _, err := s.Load(ctx, raceMirror); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := call(ctx); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	link.Refuse(false)
	mustSave(t, s, record("t", 0, 2))
	if _, err := s.SaveIntents(t.Context(), raceMirror, []coordinator.Intent{{Topic: "t", Desired: coordinator.WantStopped}}); err != nil {
		t.Fatal(err)
	}
	if got := <-watched; len(got) != 1 || got[0].Desired != coordinator.WantStopped {
		t.Errorf("the watch from before gives %v", got)
	}
}

// TestTopics: what is made of topics that are there, and of those that are not.
func TestTopics(t *testing.T) {
	t.Parallel()
	f := fake(t, 1)
	for policy, want := range map[string]error{"compact": nil, "delete": cluster.ErrRefused, "compact,delete": cluster.ErrRefused} {
		topic := unique()
		if err := f.CreateTopic(topic, 3, map[string]string{"cleanup.policy": policy}); err != nil {
			t.Fatal(err)
		}
		s := openAt(t, f.ListenAddrs(), topic)
		err := s.Save(t.Context(), raceMirror, []coordinator.Record{record("t", 0, 1)})[0]
		switch {
		case want == nil && err == nil:
		case want == nil || !errors.Is(err, want) || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "cleanup.policy"):
			t.Errorf("%s: %v", policy, err)
		}
		if got := len(f.PartitionInfos(topic)); got != 3 {
			t.Errorf("%s has %d partitions, it had 3", topic, got)
		}
	}
	topic := unique()
	s := openAt(t, f.ListenAddrs(), topic)
	got, err := s.Positions(t.Context(), "x", []cluster.Partition{{Topic: "t"}, {Topic: "u"}})
	if err != nil || len(got) != 2 || got[0].Found || got[1].Found {
		t.Errorf("positions without a topic: %v, %v", got, err)
	}
	if _, err := s.Load(t.Context(), "m"); err != nil {
		t.Error(err)
	}
	if f.TopicInfo(topic) != nil {
		t.Error("a reader has created the topic")
	}
}

// TestMorePartitions: with another number of partitions keys are not where they are looked
// for, and that is said.
func TestMorePartitions(t *testing.T) {
	t.Parallel()
	f := fake(t, 1)
	topic := unique()
	s := openAt(t, f.ListenAddrs(), topic)
	var records []coordinator.Record
	for i := range int32(20) {
		records = append(records, record("t", i, 1))
	}
	mustSave(t, s, records...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrCreatePartitionsRequest()
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = topic, 9
	req.Topics = append(req.Topics, more)
	if _, err := req.RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	_, err = openAt(t, f.ListenAddrs(), topic).Load(t.Context(), raceMirror)
	if err == nil || !strings.Contains(err.Error(), "number of partitions was changed") {
		t.Errorf("load: %v", err)
	}
}

// TestReplacedTopic: watches end with the topic, and the Store begins anew.
func TestReplacedTopic(t *testing.T) {
	t.Parallel()
	f := fake(t, 1)
	topic := unique()
	s := openAt(t, f.ListenAddrs(), topic)
	mustSave(t, s, record("t", 0, 1))
	watched, err := s.Watch(t.Context(), raceMirror)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	for open := true; open; {
		select {
		case _, open = <-watched:
		case <-deadline:
			t.Fatal("the watch goes on without the topic")
		}
	}
	if got := mustLoad(t, s); len(got) != 0 {
		t.Errorf("a topic that is gone holds %v", got)
	}
	mustSave(t, s, record("t", 0, 1))
	if got := mustLoad(t, s); len(got) != 1 {
		t.Errorf("stored anew: %v", got)
	}
}

// TestCutLog: what is no longer in the log is not there for who had read it either.
func TestCutLog(t *testing.T) {
	t.Parallel()
	f, n := fake(t, 1), kafkatest.NewNetwork(t)
	topic := unique()
	s, other := openAt(t, f.ListenAddrs(), topic, through(n)), openAt(t, f.ListenAddrs(), topic)
	gone, kept := record("t", 0, 1), record("t", 1, 1)
	mustSave(t, s, gone, kept)
	mustLoad(t, other)
	link := n.Link(f.ListenAddrs()[0])
	link.Refuse(true)
	link.Cut() // an answer that is on its way would bring what follows
	home := PartitionOf(raceMirror, gone.Partition, 8)
	if home == PartitionOf(raceMirror, kept.Partition, 8) {
		t.Fatal("both stand in one partition")
	}
	gone.StateEpoch = 2
	mustSave(t, other, gone)
	if err := f.DeleteRecords(topic, home, -1); err != nil {
		t.Fatal(err)
	}
	link.Refuse(false)
	want := []coordinator.Record{kept}
	kafkatest.Eventually(t, 20*time.Second, func(context.Context) error {
		if diff := cmp.Diff(want, mustLoad(t, s)); diff != "" {
			return fmt.Errorf("stored (-want +got):\n%s", diff)
		}
		return nil
	})
	gone.StateEpoch = 1
	mustSave(t, s, gone)
}

// TestLeadersMove: writers and readers follow.
func TestLeadersMove(t *testing.T) {
	t.Parallel()
	f := fake(t, 3)
	topic := unique()
	s, other := openAt(t, f.ListenAddrs(), topic), openAt(t, f.ListenAddrs(), topic)
	for epoch := int32(1); epoch <= 30; epoch++ {
		var records []coordinator.Record
		for i := range int32(16) {
			records = append(records, record("t", i, epoch))
		}
		mustSave(t, s, records...)
		if epoch%3 == 0 {
			f.ShufflePartitionLeaders()
		}
		s, other = other, s
	}
	for _, r := range mustLoad(t, other) {
		if r.StateEpoch != 30 {
			t.Errorf("%v: epoch %d", r.Partition, r.StateEpoch)
		}
	}
}

// TestClose: a closed Store says so, its watches and calls end.
func TestClose(t *testing.T) {
	t.Parallel()
	f, n := fake(t, 1), kafkatest.NewNetwork(t)
	s := openAt(t, f.ListenAddrs(), unique(), through(n))
	mustSave(t, s, record("t", 0, 1))
	watched, err := s.Watch(t.Context(), raceMirror)
	if err != nil {
		t.Fatal(err)
	}
	<-watched
	n.Link(f.ListenAddrs()[0]).Blackhole(true)
	answer := make(chan []error)
	go func() { answer <- s.Save(context.Background(), raceMirror, []coordinator.Record{record("t", 0, 2)}) }()
	kafkatest.Eventually(t, 10*time.Second, func(context.Context) error {
		s.tail.mu.Lock()
		defer s.tail.mu.Unlock()
		if len(s.tail.view.attempts) == 0 {
			return errors.New("the write has not begun")
		}
		return nil
	})
	s.Close()
	if errs := <-answer; errs[0] == nil {
		t.Error("a write that was broken off is a success")
	}
	if _, ok := <-watched; ok {
		t.Error("the watch goes on")
	}
	if _, err := s.Load(t.Context(), raceMirror); !errors.Is(err, net.ErrClosed) {
		t.Errorf("load after the end: %v", err)
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{Topic: "not legal", Partitions: -1, ReplicationFactor: -1, DialTimeout: -1, RequestTimeout: -1})
	for _, field := range []string{"Bootstrap", "Topic", "Partitions", "ReplicationFactor", "DialTimeout", "RequestTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	for _, address := range []string{"host", ":9092", "host:0", "host:x"} {
		if _, err := New(Config{Bootstrap: []string{address}}); err == nil {
			t.Errorf("%s is taken for an address", address)
		}
	}
}

// TestTooLarge: a record that the topic does not take fails alone.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	f := fake(t, 1)
	topic := unique()
	if err := f.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact", "max.message.bytes": "20000"}); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, f.ListenAddrs(), topic)
	var records []coordinator.Record
	for i := range int32(30) {
		records = append(records, record("t", i, 1))
		records[i].Reason = noise(2000) // together they are too large as well
	}
	records[7].Reason = noise(30_000)
	for i, err := range s.Save(t.Context(), raceMirror, records) {
		switch {
		case i == 7 && !errors.Is(err, cluster.ErrTooLarge):
			t.Errorf("the large one: %v", err)
		case i != 7 && err != nil:
			t.Errorf("record %d: %v", i, err)
		}
	}
	if got := len(mustLoad(t, s)); got != 29 {
		t.Errorf("%d records are stored", got)
	}
}

// TestLoadedSlicesAreTheCallers: except for the history, which nobody changes.
func TestLoadedSlicesAreTheCallers(t *testing.T) {
	t.Parallel()
	s := openAt(t, fake(t, 1).ListenAddrs(), unique())
	want := record("t", 0, 1)
	want.Restore = []cluster.GroupOffset{{Group: "g", Offset: 1}}
	mustSave(t, s, want)
	got := mustLoad(t, s)
	got[0].Sources[0], got[0].Restore[0].Group = "changed", "changed"
	want.Sources, want.Restore = []string{"source-cluster-id"}, []cluster.GroupOffset{{Group: "g", Offset: 1}}
	if diff := cmp.Diff([]coordinator.Record{want}, mustLoad(t, s)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// TestRecordOfNoPartition: it could not be found again, and must not harm what is there.
func TestRecordOfNoPartition(t *testing.T) {
	t.Parallel()
	s := openAt(t, fake(t, 1).ListenAddrs(), unique())
	if err := s.Define(t.Context(), coordinator.Definition{Name: raceMirror, Revision: 1}); err != nil {
		t.Fatal(err)
	}
	errs := s.Save(t.Context(), raceMirror, []coordinator.Record{record("", 0, 1), record("t", -1, 1), record("t", 0, 1)})
	if !errors.Is(errs[0], cluster.ErrRefused) || !errors.Is(errs[1], cluster.ErrRefused) || errs[2] != nil {
		t.Errorf("save: %v", errs)
	}
	if err := s.Delete(t.Context(), raceMirror, []cluster.Partition{{}}); err != nil {
		t.Error(err)
	}
	if got, err := s.Definitions(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("definitions %v, %v", got, err)
	}
}
