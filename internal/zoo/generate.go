package zoo

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/clustermirror/mirror/internal/batch"
)

// Generate makes a log.
func Generate(seed uint64, o Options) *Log {
	o = o.withDefaults()
	g := &generator{o: o, r: rand.New(rand.NewPCG(seed, 1279)), log: &Log{Seed: seed, Start: o.Start}, at: o.Start, now: 1_700_000_000_000}
	for i := range o.Producers {
		g.producers = append(g.producers, &producer{id: int64(4000 + i), epoch: int16(g.r.IntN(3))})
	}
	g.idempotent = g.producers
	if o.Produced {
		g.idempotent = []*producer{{id: 5000}, {id: 5001}}
	}
	for g.made < o.Batches {
		g.step()
	}
	g.close()
	g.log.End = g.at
	if o.Trim {
		g.log.trim(g)
	}
	return g.log
}

type generator struct {
	o         Options
	r         *rand.Rand
	log       *Log
	at        int64 // where the log ends
	now       int64 // ms
	made      int   // batches of data
	epoch     int32 // leader epoch
	producers []*producer
	// idempotent are those that write outside of transactions. A broker allows that to no
	// producer with an open one.
	idempotent []*producer
}

type producer struct {
	id    int64
	epoch int16
	next  int32
	open  *Transaction
}

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.r.IntN(n) == 0 }

// step makes one batch, or the hole where some were.
func (g *generator) step() {
	g.now += int64(g.r.IntN(2000))
	if g.chance(40) {
		g.epoch += int32(1 + g.r.IntN(2))
	}
	switch n := g.r.IntN(100); {
	case n < 4 && !g.o.Dense:
		g.at += int64(1 + g.r.IntN(60)) // whole batches went
	case n < 8 && !g.o.Dense:
		g.empty()
	case g.o.OldFormats && g.made < g.o.Batches/2 && n < 60:
		g.old()
	case n < 45 || g.o.Plain && (n >= 60 || !g.o.Produced):
		g.batch(nil, nil)
	case n < 60:
		g.batch(g.idempotent[g.r.IntN(len(g.idempotent))], nil)
	case n < 85:
		g.transactional()
	default:
		if p := g.any(); p.open != nil {
			g.end(p, g.chance(2))
		}
	}
}

func (g *generator) any() *producer { return g.producers[g.r.IntN(len(g.producers))] }

// transactional writes inside of a producer's transaction, which begins with it if
// none is open.
func (g *generator) transactional() {
	p := g.any()
	if p.open == nil {
		p.open = &Transaction{Producer: p.id, Fate: Open}
	}
	g.batch(p, p.open)
	if g.chance(20) { // a fenced producer: its transaction is aborted, a higher epoch goes on
		g.end(p, true)
		p.epoch++
		p.next = 0
	}
}

// end writes the marker of a producer's transaction.
func (g *generator) end(p *producer, abort bool) {
	kind, fate := byte(1), Committed
	if abort {
		kind, fate = 0, Aborted
	}
	p.open.Fate = fate
	g.put(Batch{Says: fmt.Sprintf("%s marker of producer %d", fate, p.id), Transaction: p.open, Marker: true}, batch.Spec{
		Attributes: batch.AttrControl | batch.AttrTransactional, Producer: &batch.Producer{ID: p.id, Epoch: p.epoch, Sequence: -1},
		Records: []batch.Record{{Offset: g.at, Timestamp: g.now, Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 7}}}, Next: g.at + 1,
	})
	p.open = nil
}

// close ends the transactions, or all but some.
func (g *generator) close() {
	for i, p := range g.producers {
		if p.open != nil && (g.o.Settled || i%2 == 1) {
			g.end(p, g.chance(2))
		}
	}
}

// empty is a batch whose records compaction took, and which stays for its producer's
// sequence.
func (g *generator) empty() {
	n := int64(1 + g.r.IntN(30))
	p := g.any()
	g.put(Batch{Says: "empty batch"}, batch.Spec{
		Codec: g.codec(), Producer: &batch.Producer{ID: p.id, Epoch: p.epoch, Sequence: p.next}, Next: g.at + n, Timestamp: -1,
	})
	p.next += int32(n)
}

func (g *generator) codec() batch.Codec { return batch.Codec(g.r.IntN(5)) }

// batch is one of data: of a producer without an id, with one, or in a transaction.
func (g *generator) batch(p *producer, t *Transaction) {
	rs, says := g.records()
	s := batch.Spec{Codec: g.codec(), Next: g.at + int64(len(rs))}
	b := Batch{Transaction: t, Says: says + ", " + s.Codec.String()}
	if p != nil {
		s.Producer = &batch.Producer{ID: p.id, Epoch: p.epoch, Sequence: p.next}
		p.next += int32(len(rs))
		b.Says += fmt.Sprintf(", producer %d", p.id)
	}
	if t != nil {
		s.Attributes |= batch.AttrTransactional
		b.Says += ", transactional"
	}
	if !g.o.Dense {
		rs = g.thin(rs, &b)
	}
	stamp := g.r.IntN(8)
	if g.o.Produced {
		stamp = -1
	}
	switch stamp {
	case 0:
		s.Attributes |= batch.AttrLogAppendTime
		s.Timestamp = g.now + 5
		b.Says += ", log append time"
	case 1:
		s.Attributes |= batch.AttrDeleteHorizon
		s.Timestamp = g.now + 86_400_000
		b.Says += ", delete horizon"
	case 2:
		s.Attributes |= batch.AttrLogAppendTime | batch.AttrDeleteHorizon
		s.Timestamp, s.AppendTime = g.now+86_400_000, g.now+7
		b.Says += ", log append time, delete horizon"
	}
	s.Records, b.Records = rs, rs
	if s.Attributes&batch.AttrLogAppendTime != 0 { // the producer's timestamps stay in the records
		b.Records = slices.Clone(rs)
		at := s.Timestamp
		if s.Attributes&batch.AttrDeleteHorizon != 0 {
			at = s.AppendTime
		}
		for i := range b.Records {
			b.Records[i].Timestamp = at
		}
	}
	g.made++
	g.put(b, s)
}

// thin takes records out as compaction does: the batch keeps its range.
func (g *generator) thin(rs []batch.Record, b *Batch) []batch.Record {
	n := len(rs)
	if n < 4 || !g.chance(3) {
		return rs
	}
	var kept []batch.Record
	switch g.r.IntN(4) {
	case 0:
		b.Says += ", head compacted"
		kept = rs[1+g.r.IntN(n/2):]
	case 1:
		b.Says += ", tail compacted"
		kept = rs[:1+g.r.IntN(n/2)]
	case 2:
		b.Says += ", middle compacted"
		from := 1 + g.r.IntN(n/2)
		kept = append(append(kept, rs[:from]...), rs[from+1:]...)
	default:
		b.Says += ", compacted everywhere"
		for i := 1 + g.r.IntN(2); i < n; i += 2 + g.r.IntN(3) {
			kept = append(kept, rs[i])
		}
	}
	return kept
}

// put appends a batch to the log.
func (g *generator) put(b Batch, s batch.Spec) {
	s.Base, s.LeaderEpoch = g.at, g.epoch
	if s.Producer != nil && len(s.Records) == 0 {
		s.Attributes &^= batch.AttrTransactional
	}
	b.Bytes, b.Base, b.Next = batch.Encode(s), s.Base, s.Next
	g.add(b)
}

func (g *generator) add(b Batch) {
	g.log.Batches = append(g.log.Batches, b)
	g.at = b.Next
}
