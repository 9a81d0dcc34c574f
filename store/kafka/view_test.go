package kafka

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
)

// entry is one record of a modelled log of one partition.
type entry struct {
	offset int64
	key    string
	value  []byte // nil deletes
}

// model is a log, all that was ever appended, and what compaction left of it.
type model struct {
	r     *rand.Rand
	slots []slot
	all   []entry
	left  []entry
	next  int64
	token int
}

// fold is the truth, from the whole log: a value stands when it was made on the value
// that stands just before it, and is the same for everybody. What was tried on others
// changes nothing.
func (m *model) fold(upTo int64) map[slot]entry {
	stands, turns := map[slot]entry{}, map[slot]int64{}
	for _, e := range m.all {
		if e.offset >= upTo {
			break
		}
		k, err := parseKey(e.key)
		if err == nil && e.value != nil && k.turn == turns[k.slot]+1 {
			stands[k.slot], turns[k.slot] = e, k.turn
		}
	}
	return stands
}

// write is a writer that has read below upTo what is left: it may have done so long
// ago, and seen something that never stood, because what stood was gone and what
// followed was not read yet.
func (m *model) write(upTo int64) {
	s := m.slots[m.r.IntN(len(m.slots))]
	m.token++
	value := fmt.Appendf(nil, "value %d", m.token)
	if m.r.IntN(6) == 0 {
		value = grave
	}
	from := m.left
	if m.r.IntN(2) == 0 {
		from = m.all
	}
	now := m.read(from, upTo).peek(s)
	turn := int64(1)
	if now != nil {
		turn = now.turn + 1
	}
	m.append(s.key(turn, fmt.Sprint(m.token)), value)
	if now != nil {
		m.append(now.key, nil)
	}
}

func (m *model) append(key string, value []byte) {
	e := entry{m.next, key, value}
	m.all, m.left = append(m.all, e), append(m.left, e)
	m.next++
}

// bury deletes what did not win, as anybody may who has read a part of the log.
func (m *model) bury(upTo int64) {
	v := m.read(m.left, upTo)
	for key := range v.parts[0].dead {
		if m.r.IntN(2) == 0 {
			m.append(key, nil)
		}
	}
}

// compact keeps the last record of each key below some offset, and at times drops
// deletions for good.
func (m *model) compact() {
	below := m.r.Int64N(m.next + 1)
	last := map[string]int64{}
	for _, e := range m.left {
		if e.offset < below {
			last[e.key] = e.offset
		}
	}
	drop := m.r.IntN(2) == 0
	var left []entry
	for _, e := range m.left {
		if e.offset >= below || last[e.key] == e.offset && (e.value != nil || !drop) {
			left = append(left, e)
		}
	}
	m.left = left
}

// read makes a view of what is left, as far as upTo.
func (m *model) read(entries []entry, upTo int64) *view {
	v := newView(1)
	v.parts[0].next = 0
	for _, e := range entries {
		if e.offset < upTo {
			v.take(0, batch.Record{Offset: e.offset, Key: []byte(e.key), Value: e.value}, nil)
		}
	}
	return &v
}

// standing is what a view has, by slot.
func (m *model) standing(v *view) map[slot]string {
	out := map[slot]string{}
	for _, s := range m.slots {
		if now := v.peek(s); now != nil {
			out[s] = string(now.raw)
		}
	}
	return out
}

// TestAnyRestOfTheLogGivesTheTruth: whatever compaction has removed, and however late
// writers came with what they had read long ago, a reader of the rest sees what a reader
// of everything sees.
func TestAnyRestOfTheLogGivesTheTruth(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := &model{r: r, slots: []slot{
			recordSlot("m", cluster.Partition{Topic: "a"}), recordSlot("m", cluster.Partition{Topic: "a", Partition: 1}),
			definitionSlot("m"),
		}}
		for range 60 {
			switch r.IntN(8) {
			case 0:
				m.compact()
			case 1:
				m.bury(m.next)
			case 2:
				m.bury(r.Int64N(m.next + 1))
			case 3, 4:
				m.write(r.Int64N(m.next + 1))
			default:
				m.write(m.next)
			}
		}
		m.compact()
		want := map[slot]string{}
		for s, e := range m.fold(m.next) {
			want[s] = string(e.value)
		}
		got := m.standing(m.read(m.left, m.next))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(slot{})); diff != "" {
			t.Fatalf("seed %d: %d of %d records left (-want +got):\n%s", seed, len(m.left), len(m.all), diff)
		}
	}
}

// TestAttemptsAreDecidedByTheLog: the first of two tries on the same value wins, and a
// try before which something is missing is not sure.
func TestAttemptsAreDecidedByTheLog(t *testing.T) {
	s := recordSlot("m", cluster.Partition{Topic: "a"})
	first, second, third := s.key(1, "x"), s.key(1, "y"), s.key(2, "x")
	v := newView(1)
	v.parts[0].next = 0
	for _, k := range []string{first, second, third} {
		v.attempts[k] = &attempt{}
	}
	put := func(base int64, keys ...string) {
		t.Helper()
		var records []batch.Record
		for i, k := range keys {
			records = append(records, batch.Record{Offset: base + int64(i), Key: []byte(k), Value: []byte(`{}`)})
		}
		if err := v.apply(0, batch.Encode(batch.Spec{Base: base, Records: records}), new(batch.Decoder), nil); err != nil {
			t.Fatal(err)
		}
	}
	put(0, first, second)
	put(5, third)
	want := map[string]attempt{
		first:  {seen: true, won: true, sure: true},
		second: {seen: true, sure: true},
		third:  {seen: true, won: true},
	}
	for k, w := range want {
		if got := *v.attempts[k]; got != w {
			t.Errorf("%s: %+v, want %+v", k, got, w)
		}
	}
	if v.parts[0].next != 6 {
		t.Errorf("read to %d", v.parts[0].next)
	}
	put(0, first) // a batch that was read before changes nothing
	if now := v.peek(s); now.key != third {
		t.Errorf("%s stands after a batch came twice", now.key)
	}
}

// TestMisplacedKeys: a topic whose number of partitions was changed is refused.
func TestMisplacedKeys(t *testing.T) {
	s := recordSlot("m", cluster.Partition{Topic: "a"})
	home := s.home(4)
	v := newView(4)
	v.take((home+1)%4, batch.Record{Key: []byte(s.key(1, "x")), Value: []byte("{}")}, nil)
	if v.misplaced == nil || !strings.Contains(v.misplaced.Error(), "partitions was changed") {
		t.Errorf("misplaced: %v", v.misplaced)
	}
	if v.peek(s) != nil {
		t.Error("a misplaced value counts")
	}
}

func TestKeys(t *testing.T) {
	p := cluster.Partition{Topic: "orders.v1", Partition: 12}
	for want, got := range map[string]string{
		"record/a-to-b/orders.v1/12/7/t.1":      recordSlot("a-to-b", p).key(7, "t.1"),
		"record/a%2Fb/orders.v1/12/1/t":         recordSlot("a/b", p).key(1, "t"),
		"definition/a-to-b/2/t":                 definitionSlot("a-to-b").key(2, "t"),
		"note/a-to-b/topic:orders%2F1/3/t":      noteSlot("a-to-b", "topic:orders/1").key(3, "t"),
		"intent/a-to-b/orders%20%2F":            intentKey("a-to-b", "orders /"),
		"record/a-to-b/orders.v1/12/7/t.1 home": fmt.Sprint(recordSlot("a-to-b", p).key(7, "t.1"), " home"),
	} {
		if got != want {
			t.Errorf("key %s, want %s", got, want)
		}
	}
	k, err := parseKey("record/a%2Fb/orders.v1/12/7/t.1")
	if want := (key{kind: kindRecord, slot: recordSlot("a/b", p), turn: 7, token: "t.1"}); err != nil || k != want {
		t.Errorf("%+v, %v", k, err)
	}
	for _, bad := range []string{"", "record", "record/m/t/0/1", "record/m/t/x/1/t", "record/m/t/0/0/t", "record/m/t/0/1/",
		"record/m//0/1/t", "owner/m/t/0/1/t", "intent/m", "definition/m/-1/t", "record/%zz/t/0/1/t"} {
		if k, err := parseKey(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, k)
		}
	}
}

// TestHomes: where keys stand must never change, or state is not found again.
func TestHomes(t *testing.T) {
	p := cluster.Partition{Topic: "orders", Partition: 3}
	got := []int32{PartitionOf("a-to-b", p, 50), PartitionOf("a-to-b", p, 1), MirrorPartitionOf("a-to-b", 50)}
	if diff := cmp.Diff([]int32{33, 0, 33}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("record/a%2Fb/orders.v1/12/7/t.1")
	f.Add("definition/a/1/x")
	f.Add("intent/a/b")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseKey(text)
		if err != nil {
			return
		}
		again := intentKey(k.slot.mirror, k.topic)
		if k.kind != kindIntent {
			again = k.slot.key(k.turn, k.token)
		}
		if k2, err := parseKey(again); err != nil || k2 != k {
			t.Errorf("%q is %+v, and written again as %q is %+v (%v)", text, k, again, k2, err)
		}
	})
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(`{"v":1,"topic":"a","desired":"STOPPED"}`))
	f.Add(grave)
	f.Fuzz(func(t *testing.T, b []byte) {
		if in, err := decodeIntent(b, 7); err == nil && (!in.Desired.Valid() || in.Revision != 8) {
			t.Errorf("%q is %+v", b, in)
		}
		for _, kind := range []string{kindRecord, kindDefinition} {
			v := value{raw: b}
			v.read(kind)
			if v.deleted && v.err != nil {
				t.Errorf("%q is a grave and cannot be read", b)
			}
		}
	})
}

func TestValuesOfOtherVersionsAreRefused(t *testing.T) {
	if _, err := decodeIntent([]byte(`{"v":2,"topic":"a","desired":"STOPPED"}`), 0); err == nil {
		t.Error("an intent of version 2 is read")
	}
	if _, err := decodeDefinition([]byte(`{"v":2,"name":"a"}`)); err == nil {
		t.Error("a definition of version 2 is read")
	}
	b, err := json.Marshal(coordinator.Record{Partition: cluster.Partition{Topic: "a"}, State: coordinator.StateUnknown,
		Previous: coordinator.StateUnknown, Desired: coordinator.WantMirroring})
	if err != nil {
		t.Fatal(err)
	}
	v := value{raw: []byte(strings.Replace(string(b), `"v":1`, `"v":2`, 1)), key: "record/m/a/0/1/t"}
	if v.read(kindRecord); v.err == nil || !strings.Contains(v.err.Error(), v.key) {
		t.Errorf("a record of version 2: %v", v.err)
	}
}

// TestUnsureTriesAreLookedAtAgain: a try that might not be the first of its turn counts
// only when it stands at the end of a log that was looked up after it was read.
func TestUnsureTriesAreLookedAtAgain(t *testing.T) {
	s := recordSlot("m", cluster.Partition{Topic: "a"})
	mine := s.key(1, "mine")
	for name, c := range map[string]struct {
		stands string
		want   bool
	}{
		"it stands":      {mine, true},
		"another stands": {s.key(2, "other"), false},
	} {
		v := newView(1)
		v.set(s, &value{turn: 1, key: c.stands})
		w := &want{slot: s, tries: []*try{{key: mine, attempt: attempt{seen: true, won: true}}}}
		if won, look := w.won(&v, true); won || !look {
			t.Errorf("%s: at first won %t, look %t", name, won, look)
		}
		if won, look := w.won(&v, false); won || look {
			t.Errorf("%s: before the look won %t, look %t", name, won, look)
		}
		if won, _ := w.won(&v, true); won != c.want {
			t.Errorf("%s: after the look won %t", name, won)
		}
	}
}
