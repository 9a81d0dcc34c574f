package simulation

import (
	"flag"
	"runtime"
	"runtime/debug"
	"testing"
)

var (
	schedules    = flag.Uint64("schedules", 0, "how many random schedules; 0: 20,000, with the race detector 500")
	seed         = flag.Uint64("seed", 1, "of the first random schedule; each has the next one")
	enough       = flag.Int("findings", 3, "a run ends when it has found so many")
	replay       = flag.String("replay", "", "file with a schedule to be played")
	allMutations = flag.Bool("mutations", false, "try every mutation, not just three")
	sevenDays    = flag.Bool("seven-days", false, "run seven simulated days, not one")

	// Of the processes that the tests start.
	shardFrom  = flag.Uint64("shard.from", 0, "internal: first seed of this process")
	shardCount = flag.Uint64("shard.count", 0, "internal: how many seeds this process plays")
)

// TestMain has one processor: on several, a bubble of testing/synctest stood still
// once in some hundred runs (go1.26.8; fetcher's TestMain says more).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(800) // every schedule is a world of its own, and small
	m.Run()
}
