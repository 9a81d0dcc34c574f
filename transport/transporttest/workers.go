package transporttest

import (
	"errors"
	"sync"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

var workerChecks = []check{
	{"another worker takes over", with("Another", hasAnother), takesOver},
	{"two workers never make a mess", with("Another", hasAnother), twoWorkers},
	{"a fence ends a stretch", with("Fencer", hasFencer), fence},
	{"a fence locks other workers out", with("Fencer and Another", func(e End) bool { return hasFencer(e) && hasAnother(e) }), fenceOthers},
	{"leaders move", with("Elect", hasElect), leadersMove},
}

// takesOver: a worker that knows nothing finds the log end and goes on there; what the
// one before sends then lands at its own offset or nowhere.
func takesOver(k *kit) {
	p := k.started()
	k.land(k.to, p, k.batch(0, 2), k.batch(2, 2))
	second := k.end.Another(k.TB)
	if e := k.begin(second, stretch(p)); e.LogEnd != 4 || !e.Ours || e.Stopped {
		k.Fatalf("the second worker finds %+v", e)
	}
	k.land(second, p, k.batch(4, 2))
	k.append(k.to, p, k.batch(4, 2)) // it stands there already: a result of either kind
	if e := k.begin(k.to, stretch(p)); e.LogEnd != 6 {
		k.Errorf("the first worker looks again: %+v", e)
	}
	k.holds(k.to, p, k.run(0, 3, 2)...)
}

// twoWorkers is C11.3: both copy the same source at the same time, each believing
// itself alone. The log is the source's, whoever wins.
func twoWorkers(k *kit) {
	p := k.started()
	const size, total = 2, 60
	all := k.run(0, total/size, size)
	workers := []Destination{k.to, k.end.Another(k.TB), k.end.Another(k.TB)}
	var looked sync.WaitGroup
	looked.Add(len(workers))
	work := func(d Destination) {
		for first := true; ; first = false {
			e := k.look(d, stretch(p))
			if first { // all believe that the log is empty
				looked.Done()
				looked.Wait()
			}
			if e.Err != nil {
				if !k.rest() {
					return
				}
				continue
			}
			if e.LogEnd > total {
				k.Errorf("the log ends at %d, behind all that was appended", e.LogEnd)
				return
			}
			for _, b := range all[e.LogEnd/size:] {
				if r := k.append(d, p, b); r.Err != nil {
					break
				} else if r.Next == total {
					return
				}
			}
			if e.LogEnd == total {
				return
			}
		}
	}
	var group sync.WaitGroup
	for _, d := range workers {
		group.Go(func() { work(d) })
	}
	group.Wait()
	k.holds(k.to, p, all...)
}

// fence is I6: after it nothing of the stretch lands, it can be repeated, and only a
// new stretch goes on.
func fence(k *kit) {
	p := k.started()
	k.land(k.to, p, k.batch(0, 2))
	k.replicated(k.to, stretch(p))
	end := int64(-1)
	for range 2 {
		ends, err := k.to.(fetcher.Fencer).Fence(k.ctx, []fetcher.Stretch{stretch(p)})
		if err != nil || len(ends) != 1 || ends[0].Err != nil || ends[0].LogEnd < 2 {
			k.Fatalf("fence: %+v, %v", ends, err)
		}
		if end >= 0 && ends[0].LogEnd != end {
			k.Errorf("a fence that was there already: log end %d, was %d", ends[0].LogEnd, end)
		}
		end = ends[0].LogEnd
	}
	if r := k.append(k.to, p, k.batch(2, 2)); r.Err == nil {
		k.Errorf("an append behind the fence: %+v", r)
	}
	e := k.look(k.to, stretch(p))
	if !e.Stopped || e.LogEnd != end || e.Err != nil {
		k.Errorf("Ends behind the fence: %+v", e)
	}
	if r := k.append(k.to, p, k.batch(end, 2)); r.Err == nil {
		k.Errorf("an append to a stopped stretch: %+v", r)
	}
	if k.end.Produce != nil {
		if err := k.end.Produce(k.ctx, p, k.batch(0, 1).Bytes); err != nil {
			k.Errorf("after the stop clients may write: %v", err)
		}
		end++
	}
	again := stretch(p)
	again.New = true
	if e := k.begin(k.to, again); e.Stopped || e.LogEnd != end {
		k.Fatalf("a new stretch: %+v, want the end at %d", e, end)
	}
	k.land(k.to, p, k.batch(end, 2))
	if e := k.replicated(k.to, stretch(p)); e.Stopped || e.LogEnd != end+2 {
		k.Errorf("the new stretch goes on: %+v", e)
	}
}

// fenceOthers: the fence is of another process than the one that still appends.
func fenceOthers(k *kit) {
	ps := k.topic(2)
	for _, p := range ps {
		k.begin(k.to, stretch(p))
		k.land(k.to, p, k.batch(0, 2))
		k.replicated(k.to, stretch(p))
	}
	second := k.end.Another(k.TB)
	stretches := []fetcher.Stretch{stretch(ps[0]), stretch(ps[1])}
	ends, err := second.(fetcher.Fencer).Fence(k.ctx, stretches)
	if err != nil {
		k.Fatal(err)
	}
	for i, p := range ps {
		if ends[i].Err != nil {
			k.Fatal(ends[i].Err)
		}
		if r := k.append(k.to, p, k.batch(2, 2)); r.Err == nil || r.Batches != 0 {
			k.Errorf("an append of a worker that was fenced: %+v", r)
		}
		if e := k.look(k.to, stretch(p)); e.Err == nil && !e.Stopped || e.Err != nil && !errors.Is(e.Err, cluster.ErrFenced) {
			k.Errorf("Ends of a worker that was fenced: %+v", e)
		}
		if e := k.look(second, stretch(p)); e.LogEnd != ends[i].LogEnd {
			k.Errorf("the log end behind the fence moved from %d to %d", ends[i].LogEnd, e.LogEnd)
		}
	}
}

// leadersMove: each batch lands once, at its offset, whoever leads (I4).
func leadersMove(k *kit) {
	p := k.started()
	const total, turns = 60, 3
	all := k.run(0, total, 1)
	done := int64(0)
	for turn := 0; done < total; turn++ {
		upTo := min(total, int64(turn+1)*total/turns)
		for done < upTo {
			r := k.append(k.to, p, all[done])
			if r.Err != nil {
				if done = k.begin(k.to, stretch(p)).LogEnd; !k.rest() {
					k.Fatal(r.Err)
				}
				continue
			}
			done++
		}
		if done = k.replicated(k.to, stretch(p)).LogEnd; done < total {
			k.end.Elect(k.TB, p)
		}
	}
	k.holds(k.to, p, all...)
}
