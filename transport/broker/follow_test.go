package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestFollow: followers of all versions get what we append, begin where we say, and
// cut what we cut.
func TestFollow(t *testing.T) {
	for _, version := range []int16{12, 13, 17, 18} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			s := startFollow(t, version, 2)
			all := s.lead(2, nil)
			p, later := all[0], all[1]
			if err := later.StartAt(520); err != nil {
				t.Fatal(err)
			}
			want := s.add(p, 0, 50)
			s.holds(0, 0, 199, want...)
			tail := s.add(later, 520, 10)
			s.holds(1, 520, 559, tail...)

			cut := make(chan error, 1)
			p.Truncate(80, func(err error) { cut <- err })
			if err := <-cut; err != nil {
				t.Fatal(err)
			}
			s.holds(0, 0, 80, want[:20]...)
			want = append(want[:20:20], s.add(p, 90, 5)...)
			s.holds(0, 0, 109, want...)
			p.Lead(9) // the followers hear of it later, and are refused until then
			s.within("refused", func() error {
				for _, f := range s.followers {
					f.mu.Lock()
					delayed := f.log(0).delayed
					f.mu.Unlock()
					if delayed.IsZero() {
						return fmt.Errorf("follower %d goes on in an older epoch", f.id)
					}
				}
				return nil
			})
			for _, f := range s.followers {
				f.mu.Lock()
				f.log(0).epoch, f.log(0).changed = 9, true
				f.mu.Unlock()
			}
			s.leads(p)
			want = append(want, s.add(p, 110, 3)...)
			s.holds(0, 0, 121, want...)
			trimmed := make(chan error, 1)
			later.Trim(528, func(err error) { trimmed <- err })
			if err := <-trimmed; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestIdleFollowersCostNothing: an idle partition is not named, not answered, and its
// follower is not taken for dead.
func TestIdleFollowersCostNothing(t *testing.T) {
	s := startFollow(t, 17, 2)
	all := s.lead(40, nil)
	want := s.add(all[7], 0, 2)
	s.holds(7, 0, 7, want...)
	began := time.Now()
	for n := range 20 { // one busy partition
		want = append(want, s.add(all[7], int64(8+4*n), 1)...)
	}
	t.Logf("%v for an append that is held by both", time.Since(began)/20)
	s.holds(7, 0, 87, want...)
	for _, f := range s.followers {
		f.mu.Lock()
		f.fetches = 0
		f.mu.Unlock()
	}
	s.within("idle", func() error {
		f := s.followers[0]
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.fetches < 5 {
			return fmt.Errorf("%d fetches", f.fetches)
		}
		return nil
	})
	dead := 0
	for _, p := range all {
		p.Tick(time.Now())
		for _, f := range p.State().Followers {
			if !f.Live || !f.CaughtUp {
				dead++
			}
		}
	}
	if dead > 0 {
		t.Errorf("%d followers of idle partitions are taken for dead", dead)
	}
}

// TestStrangersOnTheListener: who is no follower is passed on as ever, also where
// followers are heard, and a follower elsewhere is no follower.
func TestStrangersOnTheListener(t *testing.T) {
	r := startReal(t)
	_, addr := serveTest(t, r, ServerConfig{BrokerListener: "CLIENT"})
	conn := dialTest(t, addr)
	consumer := fetchOf(0, -1, 1)
	consumer.Topics[0].Topic = "t"
	asked := 0
	for _, version := range []int16{4, 11, 12, 15, 18} {
		consumer.SetVersion(version)
		var b []byte
		if version >= 12 {
			b = []byte{0}
		}
		frame := frameOf(1, version, 1, consumer.AppendTo(b)...)
		if got := exchange(t, conn, frame); !slices.Equal(got[4:], frame) {
			t.Errorf("version %d is not passed on", version)
		}
		asked++
	}
	_, addr = serveTest(t, r, ServerConfig{BrokerListener: "INTERNAL"})
	consumer.ReplicaState.ID = 1
	frame := frameOf(1, 18, 1, consumer.AppendTo([]byte{0})...)
	if got := exchange(t, dialTest(t, addr), frame); !slices.Equal(got[4:], frame) {
		t.Error("a replica id on a client's listener is not passed on")
	}
}
