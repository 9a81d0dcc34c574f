package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/clustermirror/mirror/transport/memory"
)

// known are the rules and steps that random schedules do not have, since what they
// would find is known: writes of users into a topic that is being mirrored, before
// anything has been appended from which a cluster that can refuse them would know.
const known = "early-writes"

// Generate makes a random schedule: always the same for the same seed. It tells a
// story that could be (records are written, a mirror runs, fails over and back), with
// anything that can go wrong in between.
func Generate(seed uint64) Schedule {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x6d6972726f72)), here: "A", there: "B"}
	g.setup()
	for range g.rng.IntN(3) {
		g.produce(g.here)
	}
	g.add(Step{Op: Start, Mirror: g.forth()})
	for range 10 + g.rng.IntN(26) {
		g.next()
		if g.chance(2) {
			g.add(Step{Op: Pass})
		}
	}
	if len(g.s.Steps) == 0 || g.s.Steps[len(g.s.Steps)-1].Op != Settle {
		g.add(Step{Op: Settle})
	}
	return g.s
}

type generator struct {
	rng         *rand.Rand
	s           Schedule
	here, there string // where records are written now, and where they are mirrored to
	chained     bool
	ends        [4]int64 // about where logs end, by partition
}

// forth and back are the mirror at work and the one the other way.
func (g *generator) forth() string { return g.here + g.there }
func (g *generator) back() string  { return g.there + g.here }

func (g *generator) add(s Step)          { g.s.Steps = append(g.s.Steps, s) }
func (g *generator) chance(one int) bool { return g.rng.IntN(one) == 0 }

func (g *generator) setup() {
	set := Setup{Partitions: 1, Kind: "keeps", Unclean: !g.chance(3), Discard: g.chance(5), Scratch: g.chance(8), GapFails: g.chance(8), Without: known}
	if g.chance(3) {
		set.Partitions = 2 + int64(g.rng.IntN(2))
	}
	switch g.rng.IntN(10) {
	case 0:
		set.Kind = "produce"
	case 1, 2, 3:
		set.Kind = "own"
	}
	g.s.Setup = set
}

func (g *generator) p() int32      { return int32(g.rng.IntN(int(g.s.Setup.Partitions))) }
func (g *generator) broker() int32 { return int32(1 + g.rng.IntN(3)) }

// one is either cluster, the one that is written to more often.
func (g *generator) one() string {
	if g.chance(3) {
		return g.there
	}
	return g.here
}

// mirror is mostly the one at work.
func (g *generator) mirror() string {
	switch {
	case g.chadded():
		return "BC"
	case g.chance(6):
		return g.back()
	}
	return g.forth()
}

func (g *generator) chadded() bool { return g.chained && g.chance(3) }

func (g *generator) span() time.Duration {
	return []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 12 * time.Second,
	}[g.rng.IntN(6)]
}

func (g *generator) produce(at string) {
	p, n := g.p(), 1+int64(g.rng.IntN(4))
	g.ends[p] += n
	g.add(Step{Op: Produce, At: at, P: p, N: n, Size: 1 + int64(g.rng.IntN(3))})
}

// next adds one thing that happens, sometimes of several steps.
func (g *generator) next() {
	weights := []struct {
		weight int
		do     func()
	}{
		{24, func() { g.produce(g.here) }},
		{3, func() { g.produce(g.there) }},
		{5, g.transaction},
		{5, func() { g.add(Step{Op: Elect, At: g.one(), P: g.p(), Broker: g.broker()}) }},
		{5, g.unclean},
		{4, g.broken},
		{3, g.trim},
		{1, g.topic},
		{2, func() { g.add(Step{Op: Group, At: g.here, P: g.p(), N: g.rng.Int64N(g.ends[0] + 2)}) }},
		{5, g.operate},
		{5, g.failover},
		{8, g.die},
		{5, g.stand},
		{8, g.lose},
		{2, func() { g.add(Step{Op: Storeless, At: g.one(), For: g.span()}) }},
		{10, func() { g.add(Step{Op: Advance, For: g.span()}) }},
		{3, func() { g.add(Step{Op: Settle}) }},
		{1, g.chain},
	}
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	at := g.rng.IntN(total)
	for _, w := range weights {
		if at -= w.weight; at < 0 {
			w.do()
			return
		}
	}
}

func (g *generator) transaction() {
	s := Step{At: g.one(), P: g.p(), N: 1 + int64(g.rng.IntN(2))}
	s.Op = []Op{Begin, Begin, Commit, Abort}[g.rng.IntN(4)]
	if s.Op == Begin {
		s.Size = 1 + int64(g.rng.IntN(2))
	}
	g.ends[s.P] += 2
	g.add(s)
}

// unclean loses records: a follower stands still while more is written, and leads.
func (g *generator) unclean() {
	at, p, b := g.one(), g.p(), g.broker()
	g.add(Step{Op: Lag, At: at, P: p, Broker: b})
	for range g.rng.IntN(3) {
		g.produce(at)
	}
	if g.chance(2) {
		g.add(Step{Op: Pass})
	}
	if g.chance(5) {
		g.next()
	}
	g.add(Step{Op: Unclean, At: at, P: p, Broker: b})
	if g.chance(2) {
		g.produce(at)
	}
	if !g.chance(4) {
		g.add(Step{Op: Unlag, At: at, P: p, Broker: b})
	}
}

func (g *generator) broken() {
	at, p, b := g.one(), g.p(), g.broker()
	switch g.rng.IntN(4) {
	case 0:
		g.add(Step{Op: Freeze, At: at, P: p})
		g.next()
		g.add(Step{Op: Thaw, At: at, P: p})
	case 1:
		g.add(Step{Op: Down, At: at, Broker: b})
	case 2:
		g.add(Step{Op: Up, At: at, Broker: b})
	case 3:
		g.add(Step{Op: Down, At: at, Broker: b})
		g.next()
		g.add(Step{Op: Up, At: at, Broker: b})
	}
}

func (g *generator) trim() {
	p := g.p()
	g.add(Step{Op: Trim, At: g.here, P: p, N: 1 + g.rng.Int64N(g.ends[p]+1)})
}

func (g *generator) topic() {
	switch g.rng.IntN(4) {
	case 0:
		g.add(Step{Op: Recreate, At: g.here})
		g.ends = [4]int64{}
	case 1:
		g.add(Step{Op: Delete, At: g.here})
	default:
		if g.s.Setup.Partitions < 3 {
			g.add(Step{Op: Expand, At: g.here, N: g.s.Setup.Partitions + 1})
		}
	}
}

func (g *generator) operate() {
	switch m := g.mirror(); g.rng.IntN(6) {
	case 0, 1:
		g.add(Step{Op: Pause, Mirror: m, For: g.span()})
	case 2, 3:
		g.add(Step{Op: Resume, Mirror: m})
	case 4:
		g.add(Step{Op: Recover, Mirror: m})
	case 5:
		g.add(Step{Op: Start, Mirror: m})
	}
}

// failover stops the mirror at work; records are written where it led, and most
// often a mirror the other way takes them back.
func (g *generator) failover() {
	if g.chance(3) {
		g.die()
	}
	switch g.rng.IntN(4) {
	case 0:
		g.add(Step{Op: Promote, Mirror: g.forth()})
	case 1:
		g.add(Step{Op: Stop, Mirror: g.forth(), For: g.span()})
	default:
		g.add(Step{Op: Stop, Mirror: g.forth()})
	}
	for range g.rng.IntN(3) {
		g.produce(g.one())
	}
	if g.chance(4) {
		return
	}
	g.here, g.there = g.there, g.here
	if g.chance(4) {
		g.next()
	}
	g.add(Step{Op: Start, Mirror: g.forth()})
}

// die ends processes, most often in the middle of something.
func (g *generator) die() {
	m := g.mirror()
	switch g.rng.IntN(6) {
	case 0:
		g.add(Step{Op: Crash, Mirror: m})
	case 1, 2, 3:
		s := Step{Op: Crash, Mirror: m, N: 1 + int64(g.rng.IntN(30))}
		if g.chance(2) {
			s.Size = 1
		}
		if g.chance(4) {
			s.N, s.Call = 1+int64(g.rng.IntN(2)), g.call()
		}
		g.add(s)
		return
	case 4:
		g.add(Step{Op: Close, Mirror: m})
	}
	if g.chance(2) {
		g.produce(g.here)
	}
	g.add(Step{Op: Run, Mirror: m})
}

// stand has processes stand still, or be replaced while they go on.
func (g *generator) stand() {
	m := g.mirror()
	switch g.rng.IntN(4) {
	case 0:
		g.add(Step{Op: Suspend, Mirror: m})
		g.next()
		g.add(Step{Op: Takeover, Mirror: m})
		g.next()
		g.add(Step{Op: Wake, Mirror: m})
	case 1:
		g.add(Step{Op: Suspend, Mirror: m})
	case 2:
		g.add(Step{Op: Wake, Mirror: m})
	case 3:
		g.add(Step{Op: Takeover, Mirror: m})
	}
}

// call is a kind of request; the more there is to go wrong, the more often.
func (g *generator) call() string {
	calls := []memory.Call{
		memory.CallFetch, memory.CallFetch, memory.CallAppend, memory.CallAppend, memory.CallAppend, memory.CallEnds, memory.CallEnds,
		memory.CallLeaders, memory.CallOffsets, memory.CallEpochEnds, memory.CallRead, memory.CallTruncate, memory.CallFence,
		memory.CallRaiseEpochs, memory.CallAbortOpen, memory.CallTopics, memory.CallOpen, memory.CallStartAt, memory.CallTrim, storeCall, storeCall, "",
	}
	return string(calls[g.rng.IntN(len(calls))])
}

func (g *generator) lose() {
	s := Step{Mirror: g.mirror(), N: 1 + int64(g.rng.IntN(3)), Call: g.call()}
	s.Op = []Op{Lose, LoseReply, Late, LateReply}[g.rng.IntN(4)]
	if s.Op == Late || s.Op == LateReply {
		s.For = g.span()
	}
	g.add(s)
}

// chain has a third cluster take part.
func (g *generator) chain() {
	switch {
	case !g.chained:
		g.chained = true
		g.add(Step{Op: Start, Mirror: "BC"})
	case g.chance(2):
		g.add(Step{Op: Stop, Mirror: "BC"})
	default:
		g.add(Step{Op: Start, Mirror: []string{"CA", "CB", "BC"}[g.rng.IntN(3)]})
	}
}
