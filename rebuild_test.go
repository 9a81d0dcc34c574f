package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// A site is a cluster that has failed while records were not mirrored yet, in every
// partition, and the cluster that took over and went on.
type site struct {
	t              *testing.T
	lost, took     *memory.Cluster
	storeA, storeB *coordinator.Memory
	was            cluster.NewTopic

	mu    sync.Mutex
	tails map[cluster.Partition]cluster.Span
}

var billed = []cluster.Partition{{Topic: "billed", Partition: 0}, {Topic: "billed", Partition: 1}, {Topic: "billed", Partition: 2}}

func newSite(t *testing.T) *site {
	rebuilds := memory.Options{ID: "lost", Produce: true, Traits: &fetcher.Traits{Truncation: fetcher.TruncateRebuild}}
	s := &site{
		t: t, lost: memory.New(rebuilds), took: memory.New(memory.Options{ID: "took", Produce: true}),
		storeA: coordinator.NewMemory(), storeB: coordinator.NewMemory(), tails: map[cluster.Partition]cluster.Span{},
	}
	s.check(s.lost.CreateTopic(cluster.NewTopic{
		Name: "billed", Partitions: 3, ReplicationFactor: 2, Configs: []cluster.TopicConfig{{Name: "min.insync.replicas", Value: "2"}},
	}))
	s.write(s.lost, "one", "two", "three")
	there, end := s.run("there", s.lost.Client("there"), s.took.Client("there"), mirror.Options{Store: s.storeB, Positions: s.storeA})
	settle(time.Second)
	s.check(there.Pause(context.Background(), "billed"))
	s.write(s.lost, "gone", "gone too")
	for i, p := range billed { // has read up to the cut, before it, behind it
		s.check(s.lost.CommitAs("idle", cluster.Committed{Partition: p, Offset: []int64{3, 2, 5}[i]}))
	}
	s.check(there.Stop(context.Background(), "billed"))
	end()
	for i, p := range billed { // of these the other site knows nothing
		s.check(s.lost.CommitAs("sharing", cluster.Committed{Partition: p, Offset: []int64{3, 2, 5}[i]}))
	}
	s.lost.SetGroupType("sharing", "share")
	s.write(s.took, "four", "five", "six")
	_, was, err := s.lost.Describe(context.Background(), "billed")
	s.was = was
	s.check(err)
	return s
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) write(c *memory.Cluster, values ...string) {
	for _, p := range billed {
		_, err := c.Produce(p, memory.Values(values...)...)
		s.check(err)
	}
}

func (s *site) run(name string, from mirror.Source, to mirror.Destination, o mirror.Options) (m *mirror.Mirror, end func()) {
	o.Topics.Include = []string{"billed"}
	m, err := mirror.New(name, from, to, &o)
	s.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	return m, sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	})
}

// home runs the failback.
func (s *site) home(to mirror.Destination) (m *mirror.Mirror, end func()) {
	return s.run("home", s.took.Client("home"), to, mirror.Options{
		Store: s.storeA, Positions: s.storeB, SyncInterval: time.Second, NoConfigs: true,
		Salvage: func(_ context.Context, t mirror.Tail) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tails[t.Partition] = t.Span
			return nil
		},
	})
}

// whole checks that the failback has come to a good end.
func (s *site) whole(m *mirror.Mirror) {
	s.t.Helper()
	if st := m.Status(); st.States[coordinator.StateMirroring] != len(billed) {
		s.t.Fatalf("%v: %+v", st.States, st.Worst)
	}
	_, is, err := s.lost.Describe(context.Background(), "billed")
	s.check(err)
	if diff := cmp.Diff(s.was, is); diff != "" {
		s.t.Errorf("topic (-was +is):\n%s", diff)
	}
	for i, p := range billed {
		want, err := s.took.Records(p, false)
		s.check(err)
		got, err := s.lost.Records(p, false)
		s.check(err)
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
			s.t.Errorf("%v: %s", p, diff)
		}
		if span := (cluster.Span{From: 3, To: 5}); s.tails[p] != span {
			s.t.Errorf("%v: saved %v, lost was %v", p, s.tails[p], span)
		}
		have, err := s.lost.Committed(context.Background(), []string{"idle", "sharing"})
		s.check(err)
		for n, a := range have {
			at := int64(-1)
			for _, o := range a.Offsets {
				if o.Partition == p {
					at = o.Offset
				}
			}
			if want := []int64{3, 2, 3}[i]; at != want {
				s.t.Errorf("%v: group %d is at %d, want %d", p, n, at, want)
			}
		}
	}
}

// TestRebuildSavesEveryTail: each partition of a topic has a tail of its own. The
// topic is deleted once, by whichever comes first, and all tails are saved before;
// groups are put back no further than the cut, whatever they have read (I9, I11).
func TestRebuildSavesEveryTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		m, end := s.home(s.lost.Client("home"))
		defer end()
		settle(time.Minute)
		s.whole(m)
	})
}

// halfway is a destination whose process dies between deleting a topic and creating
// it again.
type halfway struct {
	*memory.Client
	c    *memory.Cluster
	died chan struct{}
}

func (h *halfway) Rebuild(ctx context.Context, topic string, _ cluster.TopicID, _ cluster.NewTopic) (cluster.TopicID, error) {
	err := h.c.DeleteTopic(topic)
	close(h.died)
	<-ctx.Done()
	return cluster.TopicID{}, errors.Join(err, ctx.Err())
}

// TestRebuildAfterCrash: the next process finds no topic. It is created as it was, by
// the rebuild and not by a sync, which would not know how.
func TestRebuildAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		h := &halfway{s.lost.Client("dies"), s.lost, make(chan struct{})}
		_, end := s.home(h)
		<-h.died
		settle(5 * time.Second) // syncs come by
		if _, _, err := s.lost.Describe(t.Context(), "billed"); !errors.Is(err, cluster.ErrUnknownTopic) {
			t.Errorf("somebody has created the topic: %v", err)
		}
		end()
		m, end := s.home(s.lost.Client("home"))
		defer end()
		settle(time.Minute)
		s.whole(m)
	})
}
