package mirror_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

// sites are clusters with records, by id, under one controller.
type sites struct {
	*world
	at map[string]*memory.Cluster
}

// inSites runs f in a bubble. The first site has the topic orders.
func inSites(t *testing.T, f func(t *testing.T, s *sites), ids ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sites{world: &world{t: t, store: coordinator.NewMemory()}, at: map[string]*memory.Cluster{}}
		for _, id := range ids {
			s.at[id] = memory.New(memory.Options{ID: id})
		}
		s.world.opener = func(_ context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
			return s.at[d.Source["cluster"]].Client(d.Name), s.at[d.Destination["cluster"]].Client(d.Name), nil
		}
		if err := s.at[ids[0]].CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		s.renew()
		s.run()
		f(t, s)
		s.stop()
		for _, c := range s.at {
			c.Close()
		}
	})
}

// write appends n records to each partition.
func (s *sites) write(id, what string, n int) {
	s.t.Helper()
	for i := range 2 * n {
		p := cluster.Partition{Topic: "orders", Partition: int32(i % 2)}
		if _, err := s.at[id].Produce(p, memory.Values(fmt.Sprintf("%s %d", what, i))...); err != nil {
			s.t.Fatal(err)
		}
	}
}

// equal waits until two sites have the same records, n in all, at the same offsets.
func (s *sites) equal(name, from, to string, n int64) {
	s.t.Helper()
	pass(time.Minute)
	ps := []cluster.Partition{at("orders", 0), at("orders", 1)}
	reports, err := verify.Topics(s.t.Context(), s.at[from], s.at[to], ps, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	var records int64
	for i, r := range reports {
		if records += r.Records; !r.Equal || !r.EndsEqual {
			p, _ := s.worst(name, "orders")
			s.t.Errorf("%v\n%s\n%s\n%s", r, s.at[from].Dump(ps[i]), s.at[to].Dump(ps[i]), show(p))
		}
	}
	if records != n {
		s.t.Errorf("%d records are equal, want %d", records, n)
	}
}

// TestFailovers (E5): three failovers in a row, each with records that nobody had
// copied and a new process after every step. Never is everything copied again.
func TestFailovers(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.write("A", "begin", 100)
		s.define("ab", "A", "B", "orders")
		s.equal("ab", "A", "B", 200)
		s.define("ba", "B", "A") // has no topics yet
		here, there, name, back := "A", "B", "ab", "ba"
		total := int64(200)
		for round := range 3 {
			s.at[here].SetFault(func(memory.Op) memory.Fault {
				return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrUnreachable}
			})
			pass(2 * time.Second)
			s.write(here, "unseen", 3)
			s.restart()
			s.ok("orders")(s.Stop(briefly(t), name, "orders"))
			s.write(there, fmt.Sprintf("round %d", round), 10)
			total += 20
			s.at[here].SetFault(nil)
			s.restart()
			s.ok("orders")(s.Start(briefly(t), back, "orders"))
			s.equal(back, there, here, total)
			if n := s.describe(back).Status.Records; n != 20 {
				t.Errorf("round %d: %d records were copied", round, n)
			}
			s.restart()
			s.write(there, "more", 5)
			total += 10
			s.equal(back, there, here, total)
			here, there, name, back = there, here, back, name
		}
	}, "A", "B")
}

// TestFailbackWaits: a mirror back is refused while the one the other way is at work,
// and goes on where that one stopped.
func TestFailbackWaits(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.write("A", "begin", 10)
		s.define("ab", "A", "B", "orders")
		s.equal("ab", "A", "B", 20)
		s.define("ba", "B", "A", "orders")
		pass(time.Minute)
		s.wantFailed("ba", "orders", mirror.ErrActive)
		s.write("A", "more", 10) // nothing was touched
		s.equal("ab", "A", "B", 40)
		s.ok("orders")(s.Promote(briefly(t), "ab", "orders"))
		s.write("B", "local", 10)
		s.ok("orders")(s.Recover(briefly(t), "ba", "orders"))
		s.equal("ba", "B", "A", 60)
	}, "A", "B")
}

// TestFailbackWithoutPosition (C10.5): once the mirror is deleted, nothing tells how
// much of the old log is the new source's. It is not deleted without being told to.
func TestFailbackWithoutPosition(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.write("A", "begin", 10)
		s.define("ab", "A", "B", "orders")
		s.equal("ab", "A", "B", 20)
		s.ok("orders")(s.Stop(briefly(t), "ab"))
		if err := s.Delete(briefly(t), "ab"); err != nil {
			t.Fatal(err)
		}
		s.write("A", "old", 5)
		s.write("B", "new", 10)
		before := s.at["A"].Dump(at("orders", 0))
		s.define("ba", "B", "A", "orders")
		pass(time.Minute)
		s.wantFailed("ba", "orders", mirror.ErrDiverged)
		if after := s.at["A"].Dump(at("orders", 0)); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		s.ok("orders")(s.Stop(briefly(t), "ba"))
		if err := s.Delete(briefly(t), "ba"); err != nil {
			t.Fatal(err)
		}
		d := definition("ba", "B", "A", "orders")
		d.Config = map[string]string{"scratch": "allow"}
		if _, err := s.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		s.equal("ba", "B", "A", 40)
	}, "A", "B")
}

// TestChainCopies: what A has is at C, by way of B.
func TestChainCopies(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.define("ab", "A", "B", "orders")
		pass(time.Second)
		s.define("bc", "B", "C", "orders")
		s.write("A", "x", 10)
		s.equal("bc", "A", "C", 20)
		s.define("ca", "C", "A", "orders")
		pass(time.Minute)
		s.wantFailed("ca", "orders", mirror.ErrLoop)
		s.write("A", "y", 10)
		s.equal("bc", "A", "C", 40)
	}, "A", "B", "C")
}

// TestTwoControllersCopy: two controllers over one store run the same mirror. Whatever
// each does, nothing is copied twice or out of place.
func TestTwoControllersCopy(t *testing.T) {
	inSites(t, func(t *testing.T, s *sites) {
		s.define("ab", "A", "B", "orders")
		n := 0
		for range 5 {
			s.write("A", "x", 20)
			n += 40
			cancel, ended := s.cancel, s.ended
			s.renew()
			s.run()
			s.write("A", "y", 20)
			n += 40
			s.equal("ab", "A", "B", int64(n))
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}, "A", "B")
}
