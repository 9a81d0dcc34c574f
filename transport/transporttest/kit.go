package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/google/go-cmp/cmp"
)

// mirrorName is the mirror that all checks append for.
const mirrorName = "transporttest"

// kit is what a check works with.
type kit struct {
	testing.TB
	ctx    context.Context
	end    End
	to     Destination
	from   Source
	traits fetcher.Traits
	limit  time.Duration
	stamp  int64 // of all records: recent, so that no retention takes them
}

func newKit(t testing.TB, o Options) *kit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	t.Cleanup(cancel)
	k := &kit{TB: t, ctx: ctx, end: o.Open(t), limit: o.Timeout, stamp: time.Now().UnixMilli()}
	k.to, k.from = k.end.Destination, k.end.Source
	if k.to != nil {
		k.traits = k.to.Traits()
	}
	return k
}

// serial tells the names of one process apart.
var serial atomic.Int64

func unique(what string) string {
	return fmt.Sprintf("transporttest-%s-%d-%d", what, time.Now().UnixNano(), serial.Add(1))
}

// topic makes a topic and names its partitions.
func (k *kit) topic(partitions int32, configs ...cluster.TopicConfig) []cluster.Partition {
	k.Helper()
	n := cluster.NewTopic{Name: unique("topic"), Partitions: partitions, ReplicationFactor: -1, Configs: configs}
	if k.end.CreateTopic != nil {
		k.end.CreateTopic(k.TB, n)
	} else if err := k.to.CreateTopics(k.ctx, []cluster.NewTopic{n})[0]; err != nil {
		k.Fatalf("creating topic %s: %v", n.Name, err)
	}
	ps := make([]cluster.Partition, partitions)
	for i := range ps {
		ps[i] = cluster.Partition{Topic: n.Name, Partition: int32(i)}
	}
	return ps
}

func stretch(p cluster.Partition) fetcher.Stretch {
	return fetcher.Stretch{Mirror: mirrorName, Partition: p}
}

// batch is a batch of n records at base, in epoch 0.
func (k *kit) batch(base int64, n int) cluster.Batch { return k.batchOf(batch.Spec{Base: base}, n) }

// batchOf is a batch of n records with values that tell their offsets.
func (k *kit) batchOf(s batch.Spec, n int) cluster.Batch {
	for i := range n {
		o := s.Base + int64(i)
		s.Records = append(s.Records, batch.Record{
			Offset: o, Timestamp: k.stamp + int64(i), Key: fmt.Append(nil, "key ", o), Value: fmt.Append(nil, "value of ", o),
			Headers: []batch.RecordHeader{{Key: []byte("h"), Value: []byte{0, 0xff}}},
		})
	}
	return asBatch(batch.Encode(s))
}

func asBatch(b []byte) cluster.Batch {
	h := batch.Header(b)
	return cluster.Batch{Base: h.Base(), Next: h.Next(), Epoch: h.LeaderEpoch(), MaxTimestamp: h.MaxTimestamp(), Bytes: b}
}

// run are n batches of size records, one after the other.
func (k *kit) run(base int64, n, size int) (all []cluster.Batch) {
	for range n {
		b := k.batch(base, size)
		all, base = append(all, b), b.Next
	}
	return all
}

// copies are batches with bytes of their own: what is appended is given away.
func copies(batches []cluster.Batch) []cluster.Batch {
	out := slices.Clone(batches)
	for i := range out {
		out[i].Bytes = slices.Clone(out[i].Bytes)
	}
	return out
}

// look is Ends of one partition, whatever it says.
func (k *kit) look(d Destination, s fetcher.Stretch) fetcher.End {
	k.Helper()
	ends, err := d.Ends(k.ctx, []fetcher.Stretch{s})
	if err != nil || len(ends) != 1 {
		k.Fatalf("Ends of %v: %d answers, %v", s.Partition, len(ends), err)
	}
	return ends[0]
}

// begin asks Ends until the stretch can go on: a destination may say ErrFenced first
// to a worker that takes over.
func (k *kit) begin(d Destination, s fetcher.Stretch) fetcher.End {
	k.Helper()
	for {
		e := k.look(d, s)
		if e.Err == nil {
			return e
		}
		if !errors.Is(e.Err, cluster.ErrFenced) && !errors.Is(e.Err, cluster.ErrUnavailable) || !k.rest() {
			k.Fatalf("Ends of %v: %v", s.Partition, e.Err)
		}
	}
}

// rest waits a moment; false when the time is over.
func (k *kit) rest() bool {
	select {
	case <-k.ctx.Done():
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// replicated asks Ends until the whole log is below the high watermark.
func (k *kit) replicated(d Destination, s fetcher.Stretch) fetcher.End {
	k.Helper()
	for {
		e := k.begin(d, s)
		if e.HighWatermark >= e.LogEnd {
			return e
		}
		if !k.rest() {
			k.Fatalf("%v: high watermark %d stays below log end %d", s.Partition, e.HighWatermark, e.LogEnd)
		}
	}
}

// append appends a run and waits for its result.
func (k *kit) append(d Destination, p cluster.Partition, batches ...cluster.Batch) fetcher.Result {
	k.Helper()
	return k.result(k.appending(d, p, batches...))
}

func (k *kit) appending(d Destination, p cluster.Partition, batches ...cluster.Batch) <-chan fetcher.Result {
	done := make(chan fetcher.Result, 2) // room for a second one, which would be wrong
	d.Append(p, copies(batches), nil, func(r fetcher.Result) {
		select {
		case done <- r:
		default:
		}
	})
	return done
}

func (k *kit) result(done <-chan fetcher.Result) fetcher.Result {
	k.Helper()
	select {
	case r := <-done:
		return r
	case <-k.ctx.Done():
		k.Fatal("an append was not answered")
		return fetcher.Result{}
	}
}

// land appends and fails when anything is wrong with the result.
func (k *kit) land(d Destination, p cluster.Partition, batches ...cluster.Batch) {
	k.Helper()
	r := k.append(d, p, batches...)
	if next := batches[len(batches)-1].Next; r.Err != nil || r.Next != next || r.Batches != len(batches) || r.Partition != p {
		k.Fatalf("appending %d batches up to %d: %+v", len(batches), next, r)
	}
}

// started is a partition whose stretch has begun at an empty log.
func (k *kit) started() cluster.Partition {
	k.Helper()
	p := k.topic(1)[0]
	if e := k.begin(k.to, stretch(p)); e.LogStart != 0 || e.LogEnd != 0 || e.Stopped || e.Ours {
		k.Fatalf("a new topic: %+v", e)
	}
	return p
}

// holds fails unless the log is exactly the batches, from start on.
func (k *kit) holds(d Destination, p cluster.Partition, want ...cluster.Batch) {
	k.Helper()
	e := k.replicated(d, stretch(p))
	got := k.readAll(d, p, cluster.Offsets{LogStart: e.LogStart, HighWatermark: e.HighWatermark})
	if diff := cmp.Diff(k.shown(want, e.LogStart), k.shown(got, e.LogStart)); diff != "" {
		k.Errorf("%v is not what was appended (-want +got):\n%s", p, diff)
	}
}

// readAll reads a log batch by batch.
func (k *kit) readAll(d fetcher.Reader, p cluster.Partition, o cluster.Offsets) (all []cluster.Batch) {
	k.Helper()
	for at := o.LogStart; at < o.HighWatermark; {
		b, err := d.Read(k.ctx, p, at, 1<<20)
		if err != nil {
			k.Fatalf("reading %v at %d: %v", p, at, err)
		}
		before := at
		for w := batch.Walk(b); w.Next(); {
			if err := w.Header().Check(); err != nil {
				k.Fatalf("reading %v at %d: %v", p, at, err)
			}
			all, at = append(all, asBatch(w.Header())), w.Header().Next()
		}
		if at == before {
			break // a hole up to the end
		}
	}
	return all
}

// shown are the records of batches as text, as far as a mirror has to keep them:
// from start on, without what no consumer sees.
func (k *kit) shown(batches []cluster.Batch, start int64) (lines []string) {
	k.Helper()
	for _, b := range batches {
		h := batch.Header(b.Bytes)
		if b.Hole() || k.traits.Fills && h.Control() {
			continue
		}
		if h.Control() {
			lines = append(lines, fmt.Sprintf("%d: marker of %d", h.Base(), h.ProducerID()))
			continue
		}
		err := batch.Decode(h, func(r batch.Record) error {
			if r.Phantom || r.Offset < start {
				return nil
			}
			line := fmt.Sprintf("%d: at %d %s=%s", r.Offset, r.Timestamp, text(r.Key), text(r.Value))
			for _, h := range r.Headers {
				line += fmt.Sprintf(" %s=%s", text(h.Key), text(h.Value))
			}
			if k.traits.KeepsEpochs {
				line += fmt.Sprintf(" in epoch %d", h.LeaderEpoch())
			}
			lines = append(lines, line)
			return nil
		})
		if err != nil {
			k.Errorf("batch at %d: %v", h.Base(), err)
		}
	}
	return lines
}

func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}
