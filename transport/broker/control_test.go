package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
)

func acts(a, b act) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(act{}), cmp.Comparer(func(a, b error) bool { return errors.Is(b, a) || errors.Is(a, b) }))
}

// TestHandBackWaits: only who holds everything is let in, and those who lag are
// waited for, but not for ever.
func TestHandBackWaits(t *testing.T) {
	led := func(isr ...int32) metalog.Partition {
		return metalog.Partition{Replicas: []int32{100, 1, 2}, ISR: isr, Leader: 100, Directories: []metalog.UUID{{100}, {1}, {2}}}
	}
	tests := []struct {
		name  string
		p     metalog.Partition
		holds []int32
		late  bool
		want  act
	}{
		{"nobody holds everything", led(100), nil, true, act{}},
		{"one of two", led(100), []int32{1}, false, act{}},
		{"one of two, for long", led(100), []int32{1}, true, act{verb: syncs, to: []int32{100, 1}}},
		{"both", led(100), []int32{2, 1}, false, act{verb: syncs, to: []int32{100, 1, 2}}},
		{"in sync and lags: not elected", led(100, 1, 2), []int32{2}, true, act{verb: syncs, to: []int32{100, 2}}},
		{"all in sync", led(1, 100, 2), []int32{1, 2}, false, act{verb: assigns, to: []int32{1, 2}}},
		{"one in sync, for long", led(100, 1), []int32{1}, true, act{verb: assigns, to: []int32{1, 2}}},
		{"a stranger holds it", led(100), []int32{3, 101}, true, act{}},
		{"another worker leads", metalog.Partition{Replicas: []int32{100, 101, 1}, ISR: []int32{101}, Leader: 101}, []int32{1}, false, end(cluster.ErrNotLeader)},
		{"no real replica", metalog.Partition{Replicas: []int32{100}, ISR: []int32{100}, Leader: 100}, nil, false, end(cluster.ErrRefused)},
		{"never ours", metalog.Partition{Replicas: []int32{1, 2}, ISR: []int32{1}, Leader: -1}, nil, false, end(nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := model{Partition: tt.p}
			got, _ := decideHandBack(m.us(), m.image(t), strayID, tt.holds, tt.late)
			if diff := acts(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFencedWeWait: what only a member in good standing may ask for waits.
func TestFencedWeWait(t *testing.T) {
	m := model{Partition: metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100, 1}, Leader: 100}}
	us := m.us()
	us.Fenced = true
	back, _ := decideHandBack(us, m.image(t), strayID, []int32{1}, true)
	m.ISR, m.Leader = []int32{100}, -1
	for name, a := range map[string]act{
		"narrow":    decideNarrow(us, (&model{Partition: metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100, 1}, Leader: 100}}).image(t), strayID),
		"hand back": back, "reclaim": decideReclaim(us, m.image(t), strayID),
	} {
		if a.verb != rest {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestElectable(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    metalog.Partition
		is   error
	}{
		{"ours alone", metalog.Partition{ISR: []int32{100, 101}, ELR: []int32{101}}, nil},
		{"eligible", metalog.Partition{ISR: []int32{100}, ELR: []int32{1}}, ErrElectable},
		{"the last that was", metalog.Partition{ISR: []int32{100}, LastKnownELR: []int32{2}}, ErrElectable},
	} {
		tt.p.Replicas, tt.p.Leader = []int32{100, 1, 2}, 100
		m := model{Partition: tt.p}
		if a := decideNarrow(m.us(), m.image(t), strayID); a.verb != ends || !errors.Is(a.err, tt.is) {
			t.Errorf("%s: %+v", tt.name, a)
		}
	}
}

func TestRaiseRefusesUncleanTopics(t *testing.T) {
	m := model{Partition: metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100}, Leader: 100}}
	if a := decideRaise(m.us(), m.image(t), strayID, 3); !errors.Is(a.err, ErrElectable) {
		t.Errorf("%+v", a)
	}
}

func TestJoinRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		p  metalog.Partition
		is error
	}{
		"nobody leads":       {metalog.Partition{Replicas: []int32{1}, Leader: -1}, cluster.ErrNotLeader},
		"somebody moves it":  {metalog.Partition{Replicas: []int32{1, 2}, Adding: []int32{2}, Leader: 1}, cluster.ErrUnavailable},
		"we are on it first": {metalog.Partition{Replicas: []int32{100, 1}, Adding: []int32{100}, Leader: 1}, nil},
	} {
		m := model{Partition: tt.p}
		if a := decideJoin(m.us(), m.image(t), strayID); a.verb != ends || !errors.Is(a.err, tt.is) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestSpread: even over brokers and racks, and only on those that take replicas.
func TestSpread(t *testing.T) {
	racked := func(racks ...string) metalog.Image {
		var records []metalog.Record
		for n, rack := range racks {
			records = append(records, metalog.RegisterBroker{Broker: metalog.Broker{ID: int32(n + 1), Rack: rack, Directories: []metalog.UUID{{1}}}})
		}
		return image(t, records...)
	}
	us := (&model{}).us()
	for _, tt := range []struct {
		name               string
		i                  metalog.Image
		replicas, brokers  int
		perBroker, leaders int // of 12 partitions
	}{
		{"one rack", racked("", "", ""), 2, 3, 8, 4},
		{"three racks", racked("a", "b", "c"), 3, 3, 12, 4},
		{"two brokers a rack", racked("a", "a", "b", "b"), 2, 4, 6, 3},
		{"fenced, cordoned and ours left out", around(t, nil), 2, 3, 8, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpread(tt.i, us, rand.New(rand.NewPCG(1, 2)))
			count, first := make(map[int32]int), make(map[int32]int)
			for range 12 {
				list, err := s.next(tt.replicas)
				if err != nil {
					t.Fatal(err)
				}
				racks := make(map[string]bool)
				for _, id := range list {
					b, _ := tt.i.Broker(id)
					racks[b.Rack] = true
					count[id]++
				}
				first[list[0]]++
				if want := min(tt.replicas, len(s.racks)); len(racks) != want {
					t.Errorf("%v lies in %d racks, want %d", list, len(racks), want)
				}
				slices.Sort(list)
				if len(slices.Compact(list)) != tt.replicas {
					t.Errorf("twice on a broker: %v", list)
				}
			}
			if len(count) != tt.brokers {
				t.Errorf("on %d brokers: %v", len(count), count)
			}
			uneven := len(s.racks) > 1 && tt.brokers%len(s.racks) != 0 // a broker alone in its rack has more, as in Kafka
			for id := range count {
				if !uneven && (count[id] != tt.perBroker || first[id] != tt.leaders) {
					t.Errorf("broker %d has %d replicas and is first of %d", id, count[id], first[id])
				}
			}
		})
	}
	if _, err := newSpread(around(t, nil), us, rand.New(rand.NewPCG(1, 2))).next(4); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "4 replicas") {
		t.Errorf("more replicas than brokers: %v", err)
	}
}

func TestOwnSettings(t *testing.T) {
	str := func(s string) *string { return &s }
	const isr, unclean = "min.insync.replicas", "unclean.leader.election.enable"
	tests := []struct {
		name          string
		before, after map[string]string // what the topic has, and what it has when it is handed back
		want          []change
	}{
		{"nothing of its own", nil, map[string]string{isr: "1", unclean: "false"}, []change{{isr, nil}, {unclean, nil}}},
		{"its own", map[string]string{isr: "2", "retention.ms": "5"}, map[string]string{isr: "1", unclean: "false"}, []change{{isr, str("2")}, {unclean, nil}}},
		{"the same as ours", map[string]string{isr: "1", unclean: "false"}, map[string]string{isr: "1", unclean: "false"}, nil},
		{"changed by somebody else", map[string]string{isr: "2"}, map[string]string{isr: "3"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := json.Marshal(ownOf(tt.before))
			var own Own
			if err == nil {
				err = json.Unmarshal(b, &own)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, toOwn(tt.after, own), cmp.AllowUnexported(change{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := toMirrored(map[string]string{isr: "1", unclean: "true"}); len(got) != 1 || got[0].key != unclean || *got[0].value != "false" {
		t.Errorf("changes %v", got)
	}
}

func TestOrphans(t *testing.T) {
	id := func(n int32) metalog.PartitionID { return metalog.PartitionID{Topic: strayID.Topic, Partition: n} }
	part := func(n, leader int32) metalog.Record {
		return metalog.NewPartition{ID: id(n), Partition: metalog.Partition{Leader: leader}}
	}
	i := image(t, metalog.NewTopic{Name: "t", ID: strayID.Topic}, part(0, 100), part(1, -1), part(2, 1), part(3, 1))
	got := orphans((&model{}).us(), i, func(p metalog.PartitionID) bool { return p.Partition != 3 })
	if !slices.Equal(got, []metalog.PartitionID{id(1), id(2)}) {
		t.Errorf("%v", got)
	}
}

// TestPick: the same is not asked for twice before it can have had its effect.
func TestPick(t *testing.T) {
	m := model{Partition: metalog.Partition{Replicas: []int32{100, 1}, ISR: []int32{100, 1}, Leader: 100, PartitionEpoch: 4}}
	now := time.Unix(1000, 0)
	open := map[metalog.PartitionID]*asked{strayID: {epoch: -1}}
	failed := make(map[metalog.PartitionID]error)
	for _, tt := range []struct {
		name   string
		change func()
		asks   bool
	}{
		{"first", func() {}, true},
		{"at once again", func() {}, false},
		{"it has had its time", func() { now = now.Add(retryAct) }, true},
		{"something has happened", func() { m.PartitionEpoch++ }, true},
	} {
		tt.change()
		if got := pick(m.us(), m.image(t), decideNarrow, open, failed, now); (len(got[syncs]) == 1) != tt.asks {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	m.Leader = 1
	if got := pick(m.us(), m.image(t), decideNarrow, open, failed, now); len(got) > 0 || len(open) > 0 || !strings.Contains(failed[strayID].Error(), "t-1: ") {
		t.Errorf("%v, left %v, failed %v", got, open, failed)
	}
}

func TestChunks(t *testing.T) {
	all := make(map[metalog.PartitionID]act)
	for n := range int32(maxActs + 1) {
		all[metalog.PartitionID{Topic: strayID.Topic, Partition: n}] = act{verb: elects, times: 1}
	}
	all[metalog.PartitionID{Topic: strayID.Topic, Partition: maxActs + 1}] = act{verb: elects, times: maxActs}
	got, sum := chunks(around(t, nil), all), 0
	for _, some := range got {
		size := 0
		for _, a := range some {
			size += a.times
		}
		sum += len(some)
		if size > maxActs {
			t.Errorf("a request of %d", size)
		}
	}
	if len(got) != 3 || sum != len(all) {
		t.Errorf("%d requests for %d of %d", len(got), sum, len(all))
	}
}

// TestRefusals: what passes is asked for again, what does not ends, and the end
// of time says what the controller said last.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name      string
		code, top int16
		times     int // refused, then done
		wait      time.Duration
		is        error
		says      string
	}{
		{"not yet eligible", 107, 0, 1, time.Minute, nil, ""},
		{"controller moved", 0, 41, 1, time.Minute, nil, ""},
		{"not authorized", 0, 31, 100, time.Minute, cluster.ErrAuthorization, "t-1"},
		{"never eligible", 107, 0, 100, time.Second, context.DeadlineExceeded, "INELIGIBLE_REPLICA"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := startFake(t, 1, metalog.NewTopic{Name: "t", ID: strayID.Topic}, metalog.NewPartition{ID: strayID, Partition: metalog.Partition{
				Replicas: []int32{100, 1}, ISR: []int32{100, 1}, Leader: 100, Directories: []metalog.UUID{{100}, {1}}}})
			f.Offer(int16(kmsg.AlterPartition), 3)
			asked := 0
			f.Handle(func(n int, req kmsg.Request) kmsg.Response {
				alter, ok := req.(*kmsg.AlterPartitionRequest)
				if !ok {
					return f.answer(n, req)
				}
				resp, topic, part := kmsg.NewPtrAlterPartitionResponse(), kmsg.NewAlterPartitionResponseTopic(), kmsg.NewAlterPartitionResponseTopicPartition()
				topic.TopidID, part.Partition = alter.Topics[0].TopicID, alter.Topics[0].Partitions[0].Partition
				if asked++; asked <= tt.times {
					resp.ErrorCode, part.ErrorCode = tt.top, tt.code
				} else {
					f.Append(metalog.ChangePartition{ID: strayID, ISR: []int32{100}})
				}
				topic.Partitions = append(topic.Partitions, part)
				resp.Topics = append(resp.Topics, topic)
				return resp
			})
			m, _ := joinFake(t, f, func(c *Config) {
				c.Identities = &MemoryIdentities{all: map[int32]Kept{100: {Identity: Identity{Broker: 100, Incarnation: metalog.UUID{1}, Directory: metalog.UUID{100}}}}}
				c.Ours = func(string, cluster.TopicID, int32) bool { return true }
			})
			if err := m.WaitJoined(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			failed := newControl(m, new(MemoryOverrides)).drive(within(t, tt.wait), []metalog.PartitionID{strayID}, decideNarrow)
			if err := failed[strayID]; tt.is == nil && err != nil || tt.is != nil && (!errors.Is(err, tt.is) || !strings.Contains(fmt.Sprint(err), tt.says)) {
				t.Errorf("%v", err)
			}
			if tt.is == nil && asked != tt.times+1 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}
