package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func rebuilding(cfg *Config) { cfg.Truncation = Rebuild }

// kept is the topic of the tests: everything about it differs from the defaults.
func kept(name string, replicas int16) cluster.NewTopic {
	return cluster.NewTopic{Name: name, Partitions: 3, ReplicationFactor: replicas,
		Configs: []cluster.TopicConfig{{Name: "cleanup.policy", Value: "compact"}, {Name: "retention.ms", Value: "123456"}}}
}

// filled makes the topic and appends ten records to each partition.
func filled(t testing.TB, c *Cluster, was cluster.NewTopic) cluster.TopicID {
	t.Helper()
	if errs := c.CreateTopics(within(t, 30*time.Second), []cluster.NewTopic{was}); errs[0] != nil {
		t.Fatal(errs)
	}
	var id cluster.TopicID
	for i := range was.Partitions {
		p := cluster.Partition{Topic: was.Name, Partition: i}
		until(t, func() bool { // a leader serves a topic a moment after it shows it
			e := endOf(t, c, stretchOf(p))
			id = e.TopicID
			return e.Err == nil
		})
		mustAppend(t, c, p, batchesAt(0, 2, 5, now()))
	}
	return id
}

// stands checks what the topic is.
func stands(t testing.TB, c *Cluster, want cluster.NewTopic) cluster.TopicID {
	t.Helper()
	id, got, err := c.Describe(within(t, 30*time.Second), want.Name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the topic is another: %s", diff)
	}
	return id
}

// startsAfresh: the log is empty, under the id given, takes nothing before Ends, and
// then from offset 0 on.
func startsAfresh(t testing.TB, c *Cluster, p cluster.Partition, id cluster.TopicID) {
	t.Helper()
	if r := appendRun(t, c, p, batchesAt(10, 1, 5, now())); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
		t.Errorf("%v took records for the old topic: %+v", p, r)
	}
	if e := beginAt(t, c, stretchOf(p)); e.TopicID != id || e.LogEnd != 0 || e.LogStart != 0 || e.Stopped || e.Ours {
		t.Errorf("%v: %+v, want an empty log of %v", p, e, id)
	}
	mustAppend(t, c, p, batchesAt(0, 3, 5, now()))
	if fresh := beginAt(t, c, stretchOf(p)); fresh.LogEnd != 15 || !fresh.Ours {
		t.Errorf("%v went on as %+v", p, fresh)
	}
}

func TestRebuild(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs(), rebuilding)
	was := kept("t", 2)
	old := filled(t, c, was)
	if id := stands(t, c, was); id != old {
		t.Fatalf("described as %v, is %v", id, old)
	}
	made, err := c.Rebuild(within(t, 30*time.Second), "t", old, was)
	if err != nil || made == old || made.IsZero() {
		t.Fatal(made, err)
	}
	if id := stands(t, c, was); id != made {
		t.Errorf("stands as %v, answered %v", id, made)
	}
	for i := range was.Partitions {
		startsAfresh(t, c, cluster.Partition{Topic: "t", Partition: i}, made)
	}
	// Again, by this process and by another one: what was made is left alone.
	for name, worker := range map[string]*Cluster{"same": c, "other": open(t, f.ListenAddrs(), rebuilding)} {
		if again, err := worker.Rebuild(within(t, 30*time.Second), "t", old, was); err != nil || again != made {
			t.Errorf("%s process once more: %v %v", name, again, err)
		}
		if e := beginAt(t, worker, stretchOf(p0)); e.LogEnd != 15 || !e.Ours {
			t.Errorf("%s process: the log was lost: %+v", name, e)
		}
	}
}

func TestRebuildIsAsked(t *testing.T) {
	f := fake(t, 1, "t", 1)
	var asked atomic.Int32
	f.Control(func(kmsg.Request) (kmsg.Response, error, bool) { f.KeepControl(); asked.Add(1); return nil, nil, false })
	was := cluster.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 1}
	some := cluster.TopicID{1}
	if id, err := open(t, f.ListenAddrs()).Rebuild(t.Context(), "t", some, was); !errors.Is(err, errors.ErrUnsupported) || !id.IsZero() {
		t.Errorf("without the option: %v %v", id, err)
	}
	c := open(t, f.ListenAddrs(), rebuilding)
	if _, err := c.Rebuild(t.Context(), "t", cluster.TopicID{}, was); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without an id: %v", err)
	}
	if _, err := c.Rebuild(t.Context(), "t", some, cluster.NewTopic{Name: "u", Partitions: 1}); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("as another topic: %v", err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestTruncationTraits(t *testing.T) {
	cuts := []fetcher.Cut{{Partition: cluster.Partition{Topic: "a", Partition: 4}, Offset: 77}, {Partition: p0, Offset: 5}}
	for name, tt := range map[string]struct {
		mode   Truncation
		trait  fetcher.Truncation
		advice string
	}{
		"refuse":  {Refuse, fetcher.TruncateNever, "Config.Truncation"},
		"rebuild": {Rebuild, fetcher.TruncateRebuild, "topic a has to be rebuilt"},
	} {
		c := open(t, []string{"127.0.0.1:1"}, func(cfg *Config) { cfg.Truncation, cfg.GapFill = tt.mode, GapFail })
		if got := c.Traits(); got != (fetcher.Traits{Truncation: tt.trait}) {
			t.Errorf("%s: %+v", name, got)
		}
		errs := c.Truncate(t.Context(), cuts)
		for i, part := range []string{"a-4", "t-0"} {
			var o *cluster.OffsetError
			if !errors.Is(errs[i], errors.ErrUnsupported) || !errors.As(errs[i], &o) || o.Span.From != cuts[i].Offset || !strings.Contains(errs[i].Error(), part) {
				t.Errorf("%s: %v", name, errs[i])
			}
		}
		if !strings.Contains(errs[0].Error(), tt.advice) {
			t.Errorf("%s: no advice in %v", name, errs[0])
		}
	}
}

func TestDescribe(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs())
	if _, _, err := c.Describe(within(t, 10*time.Second), "none"); !errors.Is(err, cluster.ErrUnknownTopic) {
		t.Errorf("absent: %v", err)
	}
	was := kept("t", 3)
	id := filled(t, c, was)
	if got := stands(t, c, was); got != id {
		t.Errorf("%v, want %v", got, id)
	}
}

// What could not be made again is not deleted.
func TestRebuildTriesBeforeItDeletes(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs(), rebuilding)
	was := kept("t", 2)
	old := filled(t, c, was)
	var deletes atomic.Int32
	f.ControlKey(int16(kmsg.DeleteTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		deletes.Add(1)
		return nil, nil, false
	})
	wide, none := was, was
	wide.ReplicationFactor, none.Partitions = 9, 0
	for name, bad := range map[string]cluster.NewTopic{"replicas": wide, "partitions": none} {
		if _, err := c.Rebuild(within(t, 10*time.Second), "t", old, bad); err == nil || !strings.Contains(err.Error(), "nothing is deleted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := deletes.Load(); n != 0 {
		t.Errorf("%d topics were to be deleted", n)
	}
	if e := beginAt(t, c, stretchOf(p0)); e.TopicID != old || e.LogEnd != 10 {
		t.Errorf("%+v", e)
	}
}

func TestRebuildWhereDeletingIsOff(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs(), rebuilding)
	was := kept("t", 2)
	old := filled(t, c, was)
	f.ControlKey(int16(kmsg.DeleteTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := kreq.(*kmsg.DeleteTopicsRequest)
		resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.ErrorCode, rt.TopicID = 73, req.Topics[0].TopicID
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	deletingIsOff(t, c, was, old)
}

func deletingIsOff(t *testing.T, c *Cluster, was cluster.NewTopic, old cluster.TopicID) {
	_, err := c.Rebuild(within(t, 20*time.Second), was.Name, old, was)
	if !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "delete.topic.enable=false") {
		t.Errorf("%v", err)
	}
	if id := stands(t, c, was); id != old {
		t.Errorf("the topic is %v, was %v", id, old)
	}
}

// A topic that somebody else made in between is never deleted; one that is not what was
// wanted is not taken for the rebuilt one either.
func TestRebuildLeavesOthersTopics(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs(), rebuilding)
	was := kept("t", 2)
	old := filled(t, c, was)
	f.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		if kreq.(*kmsg.CreateTopicsRequest).ValidateOnly {
			f.KeepControl()
			return nil, nil, false
		}
		if err := f.CreateTopic("t", 1, nil); err != nil { // a client was quicker
			t.Error(err)
		}
		return nil, nil, false
	})
	_, err := c.Rebuild(within(t, 20*time.Second), "t", old, was)
	if !errors.Is(err, cluster.ErrTopicReplaced) || !strings.Contains(err.Error(), "1 partitions instead of 3") {
		t.Errorf("%v", err)
	}
	_, got, err := c.Describe(within(t, 10*time.Second), "t")
	if err != nil || got.Partitions != 1 {
		t.Errorf("the other's topic: %+v %v", got, err)
	}
}

// Whatever request it is broken off at: the same call once more finishes it, and once.
func TestRebuildAfterEveryCrash(t *testing.T) {
	requests := crashAt(t, 0)
	if requests < 10 {
		t.Errorf("hardly anything was tried: %d requests", requests)
	}
	for at := int32(1); at <= requests; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			crashAt(t, at)
		})
	}
}

// crashAt breaks the first rebuild off at a request, which is carried out, and has a
// second process finish it. It gives the number of requests of the first; 0 breaks
// nothing off.
func crashAt(t *testing.T, crash int32) int32 {
	f := fake(t, 3, "other", 1)
	was := kept("t", 2)
	first := open(t, f.ListenAddrs(), rebuilding)
	old := filled(t, first, was)
	ctx, die := context.WithCancel(within(t, 30*time.Second))
	defer die()
	var requests, made, deleted atomic.Int32
	f.Control(func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		switch r := kreq.(type) {
		case *kmsg.CreateTopicsRequest:
			if !r.ValidateOnly && f.TopicInfo("t") == nil {
				made.Add(1)
			}
		case *kmsg.DeleteTopicsRequest:
			if f.TopicInfo("t") != nil {
				deleted.Add(1)
			}
		}
		if requests.Add(1) == crash {
			die()
		}
		return nil, nil, false
	})
	quick := rebuild{topic: "t", old: old, was: was}
	r := quick
	r.c = first
	whole, err := r.run(ctx)
	if err != nil && crash == 0 {
		t.Fatal(err)
	}
	through := err == nil // the answer may be quicker than the death
	asked := requests.Load()
	second := open(t, f.ListenAddrs(), rebuilding)
	r = quick
	r.c = second
	id, err := r.run(within(t, 30*time.Second))
	if err != nil || id == old {
		t.Fatalf("after a crash at request %d: %v %v", crash, id, err)
	}
	if through && id != whole {
		t.Errorf("crash at request %d: the first answered %v, the second %v", crash, whole, id)
	}
	if got := stands(t, second, was); got != id {
		t.Errorf("crash at request %d: stands as %v, answered %v", crash, got, id)
	}
	if made.Load() != 1 || deleted.Load() != 1 {
		t.Errorf("crash at request %d: deleted %d times, made %d times", crash, deleted.Load(), made.Load())
	}
	startsAfresh(t, second, p0, id)
	return asked
}

// lagging makes one broker show the metadata of a topic as it was when the test says so.
type lagging struct {
	broker int32
	answer atomic.Pointer[kmsg.MetadataResponseTopic] // nil: the truth
}

func (l *lagging) control(f *kfake.Cluster, topic string) {
	f.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		old := l.answer.Load()
		if f.CurrentNode() != l.broker || old == nil || len(req.Topics) != 1 || *req.Topics[0].Topic != topic {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.Topics = append(resp.Topics, *old)
		return resp, nil, true
	})
}

// The topic is not made while a broker shows the old one, and not answered while one
// does not show the new one. When time is up, the error says what is waited for.
func TestRebuildWaitsForEveryBroker(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs(), rebuilding)
	was := kept("t", 2)
	old := filled(t, c, was)
	l := lagging{broker: 2}
	stale := kmsg.NewMetadataResponseTopic()
	stale.Topic, stale.TopicID = kmsg.StringPtr("t"), old
	for i := range int32(3) {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader = i, 1
		stale.Partitions = append(stale.Partitions, p)
	}
	l.answer.Store(&stale)
	l.control(f, "t")
	_, err := c.Rebuild(within(t, time.Second), "t", old, was)
	if !errors.Is(err, context.DeadlineExceeded) || !cluster.Retriable(err) || !strings.Contains(err.Error(), "still show the deleted topic") {
		t.Errorf("%v", err)
	}
	if f.TopicInfo("t") != nil {
		t.Fatal("made while a broker shows the old one")
	}
	absent := kmsg.NewMetadataResponseTopic()
	absent.Topic, absent.ErrorCode = kmsg.StringPtr("t"), 3
	l.answer.Store(&absent)
	if _, err = c.Rebuild(within(t, 3*time.Second), "t", old, was); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "broker 2 does not show the new topic") {
		t.Errorf("%v", err)
	}
	if f.TopicInfo("t") == nil {
		t.Fatal("not made although no broker shows the old one")
	}
	l.answer.Store(nil)
	id, err := c.Rebuild(within(t, 20*time.Second), "t", old, was)
	if err != nil || id == old {
		t.Fatal(id, err)
	}
	startsAfresh(t, c, p0, id)
}

// Answers that come and go are not the end of it: NOT_CONTROLLER, TOPIC_ALREADY_EXISTS
// of a controller that has not finished deleting, too few brokers, quotas.
func TestRebuildOutlastsFlaps(t *testing.T) {
	f := fake(t, 3, "other", 1)
	c := open(t, f.ListenAddrs(), rebuilding)
	was := kept("t", 2)
	old := filled(t, c, was)
	refusals := map[int16][]int16{int16(kmsg.DeleteTopics): {41, 7, 89}, int16(kmsg.CreateTopics): {36, 38, 36, 41, 7}}
	f.Control(func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		codes := refusals[kreq.Key()]
		if r, ok := kreq.(*kmsg.CreateTopicsRequest); len(codes) == 0 || ok && r.ValidateOnly {
			return nil, nil, false
		}
		refusals[kreq.Key()] = codes[1:]
		if r, ok := kreq.(*kmsg.DeleteTopicsRequest); ok {
			resp := r.ResponseKind().(*kmsg.DeleteTopicsResponse)
			rt := kmsg.NewDeleteTopicsResponseTopic()
			rt.TopicID, rt.ErrorCode = r.Topics[0].TopicID, codes[0]
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		}
		resp := kreq.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = "t", codes[0]
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	id, err := c.Rebuild(within(t, 30*time.Second), "t", old, was)
	if err != nil || id == old {
		t.Fatal(id, err)
	}
	if len(refusals[19]) != 0 || len(refusals[20]) != 0 {
		t.Errorf("not all refusals were met: %v", refusals)
	}
	if got := stands(t, c, was); got != id {
		t.Errorf("stands as %v, answered %v", got, id)
	}
}
