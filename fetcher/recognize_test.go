package fetcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// nameless creates a partition that has no topic id, as before Kafka 2.8, or whose id the
// fetch does not know, as before 3.1, and has 50 records of it mirrored.
func (w *world) nameless(p cluster.Partition, id cluster.TopicID) {
	w.t.Helper()
	w.src.create(p, 1)
	w.src.logs[p].id, w.src.byName = id, true
	w.assign(1, p)
	w.src.produce(p, 5, 10, 5)
	w.same(time.Second, p)
}

// anew makes another log of a partition, with other records: n batches of 10.
func (w *world) anew(p cluster.Partition, leader cluster.Leader, n int) {
	w.src.logs[p] = &sourceLog{leader: leader, highWatermark: -1, id: w.src.logs[p].id} // who is asked may not know better yet
	for range n {
		w.src.logs[p].append(plain(w.src.logs[p].end(), 10, 7, leader.Epoch))
	}
}

// A topic without an id is deleted and created again while nobody sees it, and grows past
// the position: nothing of the new one is appended behind the old one (C2.3, I1).
func TestTopicMadeAnewWithoutID_C2_3(t *testing.T) {
	for _, c := range []struct {
		name   string
		unseen func(w *world, p cluster.Partition, anew func())
		n      int
		want   error
	}{
		{"connection lost", lost, 8, cluster.ErrDiverged},
		{"connection lost, as long", lost, 5, cluster.ErrDiverged},
		{"connection lost, shorter", lost, 3, cluster.ErrTruncated},
		{"unknown topic meanwhile", func(w *world, p cluster.Partition, anew func()) {
			w.src.update(func() { w.src.logs[p].faults = []Fetched{{Err: cluster.ErrUnknownTopic}} })
			w.src.update(func() { w.src.logs[p].leaderErr = cluster.ErrUnknownTopic })
			pass(5 * time.Second)
			anew()
		}, 8, cluster.ErrDiverged},
		{"out of range, and grown when the range is asked for", func(w *world, p cluster.Partition, _ func()) {
			w.src.update(func() {
				w.anew(p, cluster.Leader{Broker: 1}, 8)
				w.src.logs[p].faults = []Fetched{{Err: cluster.ErrOutOfRange}}
			})
		}, 8, cluster.ErrDiverged},
		{"led by another broker", func(w *world, p cluster.Partition, anew func()) {
			anew()
			w.src.update(func() { w.src.logs[p].leader.Broker = 2 })
		}, 8, cluster.ErrDiverged},
		{"left out of the fetch", func(w *world, p cluster.Partition, anew func()) {
			w.dst.with(p, func(l *destinationLog) {
				l.faults, l.endErr, l.endsLeft = []fault{{err: cluster.ErrUnavailable}}, cluster.ErrUnavailable, -1
			})
			w.src.produce(p, 1, 10, 5)
			pass(5 * time.Second)
			anew()
			w.dst.with(p, func(l *destinationLog) { l.endErr = nil })
		}, 8, cluster.ErrDiverged},
	} {
		for _, id := range []cluster.TopicID{{}, {7}} {
			t.Run(fmt.Sprintf("%s, id %d", c.name, id[0]), func(t *testing.T) {
				inWorld(t, Options{}, func(w *world) {
					p := part(0)
					w.nameless(p, id)
					c.unseen(w, p, func() {
						w.src.update(func() { w.anew(p, cluster.Leader{Broker: 1}, c.n) })
					})
					w.fails(p, c.want)
					pass(time.Second)
					if w.dst.end(p) != 50 {
						t.Errorf("destination ends at %d, want 50", w.dst.end(p))
					}
				})
			})
		}
	}
}

func lost(w *world, _ cluster.Partition, anew func()) {
	w.src.setDown(1, true)
	pass(time.Second)
	anew()
	w.src.setDown(1, false)
}

// The same topic is recognized, whatever happened to its brokers; a new leader that does
// not know its high watermark yet is waited for.
func TestTopicWithoutIDIsRecognized(t *testing.T) {
	for _, named := range []bool{false, true} {
		inWorld(t, Options{}, func(w *world) {
			p := part(0)
			w.nameless(p, cluster.TopicID{7})
			w.src.update(func() { w.src.byName = !named })
			pass(time.Second) // the next answer
			reads := func() int {
				w.src.mu.Lock()
				defer w.src.mu.Unlock()
				return w.src.logs[p].reads
			}
			grow := func(do func(), most int) {
				t.Helper()
				before := reads()
				do()
				w.src.produce(p, 2, 10, 5)
				w.same(30*time.Second, p)
				if n := reads() - before; named && n > 0 || !named && (n == 0 || n > most) {
					t.Errorf("named %v: read %d times", named, n)
				}
			}
			grow(func() { lost(w, p, func() {}) }, 10) // this source answers while it is down
			grow(func() { w.src.elect(p, 2) }, 1)
			grow(func() {
				w.src.update(func() { w.src.logs[p].highWatermark = 20 })
				w.src.elect(p, 1)
				pass(3 * time.Second)
				w.src.update(func() { w.src.logs[p].highWatermark = -1 })
			}, 3)
			before := reads()
			w.src.produce(p, 20, 10, 5)
			w.same(time.Second, p)
			if n := reads() - before; n != 0 {
				t.Errorf("read %d times while nothing happened", n)
			}
			if w.notes.failure(p) != nil {
				t.Errorf("failed with %v", w.notes.failure(p))
			}
		})
	}
}

// A source that knows no topic ids may hold messages of old formats: the last one is
// recognized all the same.
func TestOldMessagesAreRecognized(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.update(func() {
			l := w.src.logs[p]
			oldLog(l)
			l.batches = l.batches[:len(l.batches)-1] // ends with a wrapper
			l.id, w.src.byName = cluster.TopicID{}, true
		})
		w.assign(1, p)
		w.within(time.Minute, "all copied", func() bool { return w.dst.end(p) == 20 })
		lost(w, p, func() {})
		w.src.produce(p, 2, 10, 5)
		w.within(time.Minute, "what came since", func() bool { return w.dst.end(p) == 40 || w.notes.failure(p) != nil })
		if err := w.notes.failure(p); err != nil {
			t.Error(err)
		}
	})
}

// What fills a gap proves nothing: where the destination's log ends with it, the record
// before it is compared (C2.3, I1).
func TestTopicMadeAnewBehindFillers_C2_3(t *testing.T) {
	inFilledWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.update(func() { w.src.logs[p].id, w.src.byName = cluster.TopicID{}, true })
		w.assign(1, p)
		w.src.script(p, "ppaaCaaaAa")
		w.filled(p)
		end := w.dst.end(p)
		lost(w, p, func() {
			w.src.update(func() { w.anew(p, cluster.Leader{Broker: 1}, 8) })
		})
		w.fails(p, cluster.ErrDiverged)
		pass(time.Second)
		if got := w.dst.end(p); got != end {
			t.Errorf("destination ends at %d, want %d", got, end)
		}
	})
}
