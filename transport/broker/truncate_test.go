package broker

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/metalog"
)

func TestCuttable(t *testing.T) {
	ints := func(n ...int32) []int32 { return n }
	name := cluster.Partition{Topic: "t", Partition: strayID.Partition}
	whole := metalog.Partition{Replicas: ints(1, 2, 3), ISR: ints(1, 2), Leader: 1}
	tests := []struct {
		name   string
		change func(*metalog.Partition)
		begun  bool
		want   error
		says   string
	}{
		{name: "all replicas up, one out of sync"},
		{"one down", func(p *metalog.Partition) { p.Replicas = ints(1, 2, 5) }, false, cluster.ErrUnavailable, "broker 5 is down"},
		{"one that is not registered", func(p *metalog.Partition) { p.Replicas = ints(1, 2, 9) }, false, cluster.ErrUnavailable, "broker 9 is away"},
		{"nobody leads", func(p *metalog.Partition) { p.Leader = -1 }, false, cluster.ErrNotLeader, "nobody leads"},
		{"being moved", func(p *metalog.Partition) { p.Adding = ints(3) }, false, cluster.ErrUnavailable, "being moved"},
		{"led by a mirror", func(p *metalog.Partition) { p.Replicas, p.Leader = ints(100, 1, 2), 100 }, false, cluster.ErrRefused, "100 to 102"},
		{"in the hands of an earlier call", func(p *metalog.Partition) { p.Replicas, p.Adding, p.Leader = ints(100, 1, 2), ints(100), 100 }, true, nil, ""},
		{"nobody leads after an earlier call", func(p *metalog.Partition) { p.Leader = -1 }, true, nil, ""},
		{"on ours alone", func(p *metalog.Partition) { p.Replicas, p.Leader = ints(100), 100 }, true, cluster.ErrRefused, "no replica on a real broker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := whole
			if tt.change != nil {
				tt.change(&p)
			}
			id, err := cuttable(IDs{100, 102}, around(t, &p), name, tt.begun)
			if !errors.Is(err, tt.want) || tt.want == nil && (err != nil || id != strayID) {
				t.Errorf("%v, %v; want %v", id, err, tt.want)
			}
			if tt.want != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v does not say %q", err, tt.says)
			}
		})
	}
	on := "true"
	for topic, says := range map[string]string{"__consumer_offsets": "of Kafka's own", "tiered": "remote.storage.enable", "absent": "unknown topic"} {
		records := []metalog.Record{
			metalog.RegisterBroker{Broker: metalog.Broker{ID: 1}},
			metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "tiered"}, Key: "remote.storage.enable", Value: &on},
		}
		for n, made := range []string{"__consumer_offsets", "tiered"} {
			id := cluster.TopicID{byte(n + 1)}
			records = append(records, metalog.NewTopic{Name: made, ID: id},
				metalog.NewPartition{ID: metalog.PartitionID{Topic: id}, Partition: metalog.Partition{Replicas: ints(1), ISR: ints(1), Leader: 1}})
		}
		if _, err := cuttable(IDs{100, 102}, image(t, records...), cluster.Partition{Topic: topic}, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", topic, err, says)
		}
	}
}

// txn is a batch of one record, or a marker, of a transaction of a producer.
func txn(base, producer int64, control bool) []byte {
	attributes := batch.AttrTransactional
	if control {
		attributes |= batch.AttrControl
	}
	return batch.Encode(batch.Spec{Base: base, Producer: &batch.Producer{ID: producer}, Attributes: attributes, Records: []batch.Record{{Key: make([]byte, 4), Value: make([]byte, 6)}}})
}

func TestTailTransactions(t *testing.T) {
	const data, marker = false, true
	tests := []struct {
		name              string
		tail              [][]byte
		without, doubtful []int64
	}{
		{"none", nil, nil, nil},
		{"begins and ends there", [][]byte{txn(10, 1, data), txn(11, 1, marker)}, nil, []int64{1}},
		{"only the marker", [][]byte{txn(10, 1, marker)}, []int64{1}, nil},
		{"only the marker, and another transaction", [][]byte{txn(10, 1, marker), txn(11, 1, data), txn(12, 1, marker)}, []int64{1}, nil},
		{"never ends", [][]byte{txn(10, 1, data)}, nil, nil},
		{"two producers", [][]byte{txn(10, 1, data), txn(11, 2, marker), txn(12, 1, marker)}, []int64{2}, []int64{1}},
	}
	of := func(m map[int64]bool) (ids []int64) {
		for id, is := range m {
			if is {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return ids
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f tailFound
			size := 0
			for _, b := range tt.tail {
				f.add(b)
				size += len(b)
			}
			if !slices.Equal(of(f.without), tt.without) || !slices.Equal(of(f.doubtful()), tt.doubtful) {
				t.Errorf("without their beginning %v, doubtful %v; want %v, %v", of(f.without), of(f.doubtful()), tt.without, tt.doubtful)
			}
			if int(f.batches) != len(tt.tail) || int(f.bytes) != size {
				t.Errorf("%d batches, %d bytes", f.batches, f.bytes)
			}
		})
	}
	now := make(map[int64]int64)
	for _, b := range [][]byte{txn(1, 1, data), txn(2, 2, data), txn(3, 1, marker), txn(4, 3, data), txn(5, 2, data), txn(9, 4, data)} {
		running(now, b, 9)
	}
	if !maps.Equal(now, map[int64]int64{2: 2, 3: 4}) {
		t.Errorf("in a transaction at 9 are %v", now)
	}
	ids := func(n ...int64) map[int64]bool {
		m := make(map[int64]bool)
		for _, id := range n {
			m[id] = true
		}
		return m
	}
	for _, o := range []struct {
		surely, doubtful map[int64]bool
		want             opened
	}{
		{ids(2), ids(1), opened{producers: []int64{2}, first: 2}},
		{ids(3), ids(2), opened{producers: []int64{2, 3}, first: 2}},
		{ids(3, 7), nil, opened{producers: []int64{3, 7}, first: 4, missed: true}},
		{nil, ids(7), opened{first: 9}},
	} {
		if got := openedBy(o.surely, o.doubtful, now, 9); !reflect.DeepEqual(got, o.want) {
			t.Errorf("%v, %v: %+v, want %+v", o.surely, o.doubtful, got, o.want)
		}
	}
}

func TestNotes(t *testing.T) {
	ctx, store := t.Context(), new(MemoryOverrides)
	p := func(n int32, at int64) *cutPlan {
		return &cutPlan{Truncation: Truncation{Partition: cluster.Partition{Topic: "t", Partition: n}, Offset: at + 3, At: at}}
	}
	if err := writeNotes(ctx, store, []*cutPlan{p(0, 10), p(1, 20)}, func(*cutPlan) int32 { return math.MaxInt32 }); err != nil {
		t.Fatal(err)
	}
	if err := writeNotes(ctx, store, []*cutPlan{p(1, 20)}, func(*cutPlan) int32 { return 7 }); err != nil {
		t.Fatal(err)
	}
	all, _ := store.Load(ctx, "t")
	own := all["t"]
	for n, want := range []note{{13, 10, math.MaxInt32}, {23, 20, 7}} {
		if got, ok, err := noted(own, int32(n)); got != want || !ok || err != nil {
			t.Errorf("partition %d: %+v, %v, %v", n, got, ok, err)
		}
	}
	if _, ok, err := noted(own, 2); ok || err != nil {
		t.Errorf("a partition without a note: %v, %v", ok, err)
	}
	text := "what"
	if _, _, err := noted(Own{"cut-0": &text}, 0); err == nil {
		t.Error("nonsense is a note")
	}
	if err := othersTopics(ctx, store); err != nil {
		t.Errorf("our own notes: %v", err)
	}
	if err := store.Save(ctx, map[string]Own{"mirrored": ownOf(nil)}); err != nil {
		t.Fatal(err)
	}
	if err := othersTopics(ctx, store); !errors.Is(err, cluster.ErrActive) {
		t.Errorf("a mirror's topic: %v", err)
	}
}

func TestCutBefore(t *testing.T) {
	n := note{offset: 13, at: 10, epoch: 7}
	for name, tt := range map[string]struct {
		offset int64
		there  glimpse
		want   bool
	}{
		"written later":                  {13, glimpse{some: true, epoch: 8}, true},
		"what was to be cut":             {13, glimpse{some: true, epoch: 6}, false},
		"in our epoch, as nobody writes": {13, glimpse{some: true, epoch: 7}, false},
		"nothing there":                  {13, glimpse{}, false},
		"another cut":                    {12, glimpse{some: true, epoch: 8}, false},
	} {
		if got := cutBefore(n, tt.offset, tt.there); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUncut(t *testing.T) {
	p := &cutPlan{Truncation: Truncation{At: 10, Replicas: []int32{1, 2, 3, 4}}}
	s := lead.State{Followers: []lead.Follower{
		{Replica: 1, Known: true, Offset: 10, Holds: 10, Owes: -1},
		{Replica: 2, Known: true, Offset: 20, Holds: 10, Owes: 10},
		{Replica: 3, Offset: 10, Holds: 10, Owes: -1}, // not heard in this epoch
	}}
	if late := uncut(s, p); !slices.Equal(late, []int32{2, 3, 4}) {
		t.Errorf("not cut: %v", late)
	}
	s.Followers = append(s.Followers[:1], lead.Follower{Replica: 2, Known: true, Offset: 4, Holds: 4, Owes: -1}) // behind the cut
	if late := uncut(s, p); !slices.Equal(late, []int32{3, 4}) {
		t.Errorf("not cut: %v", late)
	}
}

func TestMoments(t *testing.T) {
	us := party{Self: Self{Broker: 100}, ids: IDs{100, 102}}
	var m moments
	for n, p := range []metalog.Partition{
		{Replicas: []int32{1, 2}, Leader: 1},
		{Replicas: []int32{100, 1, 2}, Leader: 1},
		{Replicas: []int32{100, 1, 2}, Leader: 100},
		{Replicas: []int32{100, 1, 2}, Leader: 1},
		{Replicas: []int32{1, 2}, Leader: 1},
		{Replicas: []int32{1, 2}, Leader: 2},
	} {
		m.see(us, &p, time.Unix(int64(n), 0))
	}
	if want := (moments{time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0), time.Unix(4, 0)}); m != want {
		t.Errorf("%+v", m)
	}
}

// TestTruncateRefuses: what is wrong with a call is said at once, all of it.
func TestTruncateRefuses(t *testing.T) {
	_, err := Truncate(t.Context(), TruncateConfig{}, []fetcher.Cut{{Partition: cluster.Partition{Topic: "a"}, Offset: -1}, {Partition: cluster.Partition{Topic: "a"}}})
	for _, want := range []string{"Bootstrap", "Overrides", "a-0: offset -1", "a-0: is to be cut twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, err := Truncate(t.Context(), TruncateConfig{}, nil); err == nil || !strings.Contains(err.Error(), "no partition") {
		t.Errorf("nothing to cut: %v", err)
	}
}

// TestSaveUnread: who has not read a tail has not saved it.
func TestSaveUnread(t *testing.T) {
	tl := &tail{name: cluster.Partition{Topic: "t"}, span: cluster.Span{From: 3, To: 9}}
	err := tl.save(t.Context(), func(context.Context, cluster.Partition, cluster.Span, iter.Seq2[[]byte, error]) error { return nil })
	if !errors.Is(err, errUnread) {
		t.Errorf("not read: %v", err)
	}
}

// TestReadersOfLent: a consumer behind a cut that is being made is not told that it is out of
// range, but of another epoch; all else is the real broker's word.
func TestReadersOfLent(t *testing.T) {
	var code int16
	r := startReal(t)
	r.answer = func(req kmsg.Request) kmsg.Response {
		resp := replicas(req.(*kmsg.FetchRequest), "near")
		if code != 0 {
			resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[0].Partitions[0].RecordBatches = code, []byte{}
		}
		return resp
	}
	s, addr := serveTest(t, r, ServerConfig{})
	s.lent = true
	p := ledTest(t, s, "near", true)
	conn := dialTest(t, addr)
	ask := func(epoch int32) string {
		req := fetches(12, map[string]int64{"near": 190})
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		return fetchTold(do(t, conn, 12, req).(*kmsg.FetchResponse))["near"]
	}
	if got := ask(ledEpoch); got != `error 0, "near from 190", to 190` {
		t.Error("before the cut: ", got)
	}
	p.Truncate(170, func(error) {})
	for _, tt := range []struct {
		code  int16
		epoch int32
		want  string
	}{
		{1, ledEpoch, `error 0, "", to 170`}, {1, ledEpoch - 1, `error 74, "", to -1`}, {6, ledEpoch, `error 6, "", to 190`},
	} {
		code = tt.code
		if got := ask(tt.epoch); got != tt.want {
			t.Errorf("the real broker says %d, epoch %d: %s, want %s", tt.code, tt.epoch, got, tt.want)
		}
	}
}

// TestLent: whoever writes to what we lead for a moment is told to try again, and a
// coordinator is not told that its marker is written.
func TestLent(t *testing.T) {
	r := startReal(t)
	r.answer = func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*kmsg.ProduceRequest); ok {
			resp := kmsg.NewPtrProduceResponse()
			resp.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{{ErrorCode: 6, BaseOffset: -1}}}}
			return resp
		}
		resp := kmsg.NewPtrWriteTxnMarkersResponse()
		resp.Markers = []kmsg.WriteTxnMarkersResponseMarker{{Topics: []kmsg.WriteTxnMarkersResponseMarkerTopic{
			{Topic: "t", Partitions: []kmsg.WriteTxnMarkersResponseMarkerTopicPartition{{ErrorCode: 6}}}}}}
		return resp
	}
	s, addr := serveTest(t, r, ServerConfig{})
	s.lent = true
	ledTest(t, s, "t", true)
	conn := dialTest(t, addr)
	write := kmsg.NewPtrProduceRequest()
	write.Acks = -1
	if got := do(t, conn, 9, write).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != 6 {
		t.Errorf("a write is told %d", got)
	}
	if got := do(t, conn, 1, kmsg.NewPtrWriteTxnMarkersRequest()).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode; got != 6 {
		t.Errorf("a marker is told %d", got)
	}
}
