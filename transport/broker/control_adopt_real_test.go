package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

// writer writes all the time, with acks=all.
type writer struct {
	cl      *kgo.Client
	stop    func()
	mu      sync.Mutex
	acked   int
	slowest time.Duration
	failed  error
}

func startWriter(t *testing.T, k *kafkatest.Cluster, topic string) *writer {
	t.Helper()
	return startWriterOf(t, k, topic, func(int) string { return "x" })
}

// startWriterOf writes one value after the other.
func startWriterOf(t *testing.T, k *kafkatest.Cluster, topic string, value func(n int) string) *writer {
	t.Helper()
	w := &writer{cl: k.Client(t, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			err := w.cl.ProduceSync(context.WithoutCancel(ctx), kgo.StringRecord(value(w.count()))).FirstErr()
			w.mu.Lock()
			if err == nil {
				w.acked++
			}
			w.slowest, w.failed = max(w.slowest, time.Since(began)), errors.Join(w.failed, err)
			w.mu.Unlock()
		}
	}()
	w.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(w.stop)
	return w
}

// take gives the slowest write since the last take.
func (w *writer) take() (slowest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slowest, w.slowest = w.slowest, 0
	return slowest
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// waitAcked waits until so many more have been written.
func (w *writer) waitAcked(t *testing.T, more int) {
	t.Helper()
	before := w.count()
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if w.count() < before+more {
			return errors.New("nothing is written")
		}
		return nil
	})
}

// watch looks at every image, from outside, until finish.
func (l *led) watch(t *testing.T, look func(metalog.Image)) (finish func()) {
	t.Helper()
	outside := observe(t, l.k)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for version := uint64(0); ; {
			image, _, err := outside.Next(ctx, version)
			if err != nil {
				return
			}
			version = image.Version
			look(image)
		}
	}()
	finish = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(finish)
	return finish
}

// witness notes when a real broker leads what is ours.
func (l *led) witness(t *testing.T, ids []metalog.PartitionID) (finish func()) {
	t.Helper()
	return l.watch(t, func(image metalog.Image) {
		for _, id := range ids {
			if p, ok := image.Partition(id); ok && p.Leader >= 0 && p.Leader < 100 {
				t.Errorf("a real broker leads %v: %+v", id, p)
			}
		}
	})
}

// followed measures the longest time in which a partition had us in sync without
// being led by us: writers with acks=all depend on us then.
func (l *led) followed(t *testing.T, ids []metalog.PartitionID) (finish func() time.Duration) {
	t.Helper()
	since := make(map[metalog.PartitionID]time.Time)
	var longest time.Duration
	stop := l.watch(t, func(image metalog.Image) {
		for _, id := range ids {
			p, _ := image.Partition(id)
			if slices.Contains(p.ISR, 100) && p.Leader != 100 {
				if since[id].IsZero() {
					since[id] = time.Now()
				}
			} else if !since[id].IsZero() {
				longest = max(longest, time.Since(since[id]))
				delete(since, id)
			}
		}
	})
	return func() time.Duration { stop(); return longest }
}

// TestRealAdopt: a topic that is written to comes to us and goes back, and no
// record that was acknowledged is lost.
func TestRealAdopt(t *testing.T) {
	for _, version := range newest() {
		t.Run(version, func(t *testing.T) {
			l := startLed(t, version, func(k *kafkatest.Cluster) {
				k.CreateTopic(t, "mirrored-old", 6, 3, map[string]string{"min.insync.replicas": "2"})
			})
			ids := l.mirrored("mirrored-")
			w := startWriter(t, l.k, "mirrored-old")
			w.waitAcked(t, 200)
			for _, narrow := range []bool{true, false} {
				w.take()
				followed := l.followed(t, ids)
				began := time.Now()
				none(t, "adopt", l.control.adopt(within(t, time.Minute), ids))
				t.Logf("6 partitions adopted in %v, one of them followed for %v", time.Since(began), followed())
				if narrow {
					none(t, "narrow", l.control.narrow(within(t, time.Minute), ids))
				}
				for _, id := range ids {
					if p, _ := l.image().Partition(id); p.Leader != 100 || len(p.Replicas) != 4 || narrow && len(p.ISR) != 1 {
						t.Errorf("adopted: %+v", p)
					}
				}
				began = time.Now()
				none(t, "handBack", l.control.handBack(within(t, time.Minute), ids, l.all))
				t.Logf("handed back in %v", time.Since(began))
				w.waitAcked(t, 200)
				t.Logf("the slowest write took %v", w.take())
			}
			l.tooLate(t, w, ids)
			w.stop()
			acked := w.count()
			var written int64
			for _, end := range l.k.Ends(within(t, time.Minute), t, "mirrored-old") {
				written += end
			}
			if written != int64(acked) || w.failed != nil {
				t.Errorf("%d records acknowledged, %d there: %v", acked, written, w.failed)
			}
			if got := topicConfig(l.image(), "mirrored-old")["min.insync.replicas"]; got != "2" {
				t.Errorf("min.insync.replicas is %s", got)
			}
		})
	}
}

// tooLate: what does not come to us in time is as it was.
func (l *led) tooLate(t *testing.T, w *writer, ids []metalog.PartitionID) {
	t.Helper()
	for what, change := range map[string]func(*control){
		"joining": func(c *control) { c.joining = time.Millisecond },
		"leading": func(c *control) { c.leading = 50 * time.Millisecond },
	} {
		hasty := newControl(l.us.Membership, l.store)
		change(hasty)
		began := time.Now()
		failed := hasty.adopt(within(t, time.Minute), ids)
		t.Logf("%s: not in time, back after %v: %v", what, time.Since(began), failedWith(failed))
		if len(failed) != len(ids) {
			t.Errorf("%s: %d of %d failed", what, len(failed), len(ids))
		}
		for _, id := range ids {
			if p, _ := l.image().Partition(id); len(p.Replicas) != 3 || p.Leader >= 100 || len(p.Adding)+len(p.Removing) > 0 {
				t.Errorf("%s: left: %+v", what, p)
			}
		}
		w.waitAcked(t, 20)
	}
}

// TestRealHandBackWithout: a real replica is away when we hand back, and dead
// workers are replaced by Kafka's own means.
func TestRealHandBackWithout(t *testing.T) {
	for _, version := range newest() {
		t.Run(version, func(t *testing.T) {
			l := startLed(t, version)
			ctx := within(t, 2*time.Minute)
			for _, err := range l.control.create(ctx, []cluster.NewTopic{{Name: "mirrored-a", Partitions: 6, ReplicationFactor: 3}, {Name: "mirrored-b", Partitions: 6, ReplicationFactor: 3}}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			ids := l.mirrored("mirrored-")
			none(t, "narrow", l.control.narrow(ctx, ids))
			finish := l.witness(t, ids)
			l.k.Kill(3)
			if _, err := l.us.log.Wait(ctx, func(i metalog.Image) bool { b, _ := i.Broker(3); return b.Fenced }); err != nil {
				t.Fatal(err)
			}
			finish()
			a, b := l.mirrored("mirrored-a"), l.mirrored("mirrored-b")
			began := time.Now()
			none(t, "handBack", l.control.handBack(ctx, a, l.all))
			t.Logf("handed back without broker 3 in %v", time.Since(began))
			cl := l.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			none(t, "writing", write(ctx, cl, l.image(), a))
			l.dead(t, cl, b)
			l.k.Restart(3)
			began = time.Now()
			if _, err := l.us.log.Wait(ctx, func(i metalog.Image) bool {
				return !slices.ContainsFunc(a, func(id metalog.PartitionID) bool {
					p, _ := i.Partition(id)
					return len(p.Replicas) != 3 || len(p.ISR) != 3 || slices.Contains(p.Replicas, 100)
				})
			}); err != nil {
				p, _ := l.image().Partition(a[0])
				t.Fatalf("broker 3 is back: %+v: %v", p, err)
			}
			t.Logf("we are gone %v after broker 3 came back", time.Since(began))
		})
	}
}

// dead: with all workers dead kafka-leader-election --election-type unclean has a
// real broker lead, and we do not take it back by ourselves.
func (l *led) dead(t *testing.T, cl *kgo.Client, ids []metalog.PartitionID) {
	t.Helper()
	outside := observe(t, l.k)
	if err := l.us.stop(); err != nil {
		t.Fatal(err)
	}
	image, err := outside.Wait(within(t, time.Minute), func(i metalog.Image) bool { b, ok := i.Broker(100); return ok && b.Fenced })
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType = 1
	topic := kmsg.NewElectLeadersRequestTopic()
	topic.Topic = topicName(image, ids[0])
	for _, id := range ids {
		topic.Partitions = append(topic.Partitions, id.Partition)
	}
	req.Topics = append(req.Topics, topic)
	if _, err := req.RequestWith(within(t, time.Minute), cl); err != nil {
		t.Fatal(err)
	}
	none(t, "writing", write(within(t, time.Minute), cl, image, ids))
	t.Logf("with all workers dead writable %v after an unclean election", time.Since(began))
	l.up(t)
	failed := l.control.reclaim(within(t, time.Minute), ids)
	if len(failed) != len(ids) || !errors.Is(failed[ids[0]], cluster.ErrNotLeader) {
		t.Errorf("reclaim: %v", failed)
	}
	none(t, "handBack", l.control.handBack(within(t, time.Minute), ids, l.all))
	none(t, "writing", write(within(t, time.Minute), cl, image, ids))
}
