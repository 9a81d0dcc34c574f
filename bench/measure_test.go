package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/fetcher"
)

// run is one measured copy.
type run struct {
	usage
	source, destination float64 // CPU-seconds of the brokers meanwhile
	other               float64 // share of the machine that had nothing to do with it
}

// measure copies a data set once with a contestant and takes the copy away again.
func (p pair) measure(ctx context.Context, t testing.TB, name string, s set, wire int64) run {
	t.Helper()
	j := job{
		Source: p.source.Bootstrap(), Destination: p.destination.Bootstrap(),
		Topic: s.topic(), Codec: s.codec, Records: s.records(), Bytes: wire,
	}
	switch name {
	case "pipe":
		ends := spawn(t, "ends", j)
		line := strings.Fields(ends.WaitLine(ctx, "ends "))
		j.Source, j.Destination = line[1:2], line[2:3]
		began := look()
		u := result(ctx, t, spawn(t, name, j))
		of := result(ctx, t, ends)
		return run{usage: u, other: began.other(u.CPU + of.CPU)}
	case "loop":
		p.destination.CreateTopic(t, s.topic(), partitions, 1, nil)
	case "mirror", "joined":
		j.Internal, j.ClusterID = p.destination.Internal(), p.destination.ClusterID()
		j.Profile, j.Fetch = profileFor(name, s), fetcher.Options{
			PartitionBytes: int32(*partitionBytes), ResponseBytes: int32(*responseBytes), BudgetBytes: int64(*budgetBytes),
		}
	}
	began := look()
	source, destination := p.source.CPUSeconds(), p.destination.CPUSeconds()
	r := run{usage: result(ctx, t, spawn(t, name, j))}
	r.source, r.destination = p.source.CPUSeconds()-source, p.destination.CPUSeconds()-destination
	r.other = began.other(r.CPU + r.source + r.destination)
	p.check(ctx, t, s)
	p.drop(ctx, t, s.topic())
	return r
}

// warm has the brokers compile what every copy uses: the first one would pay for
// the others.
func (p pair) warm(t testing.TB, contestants ...string) {
	t.Helper()
	s := set{name: "warm", codec: "none", batch: 16 << 10, value: 1000, megabytes: 32}
	wire := p.prepare(t.Context(), t, s)
	for _, name := range contestants {
		p.measure(t.Context(), t, name, s, wire)
	}
}

// check: a copy that is not one proves nothing about its cost.
func (p pair) check(ctx context.Context, t testing.TB, s set) {
	t.Helper()
	ends, copied := p.source.Ends(ctx, t, s.topic()), p.destination.Ends(ctx, t, s.topic())
	if fmt.Sprint(ends) != fmt.Sprint(copied) {
		t.Fatalf("source ends %v, copy ends %v", ends, copied)
	}
}

// moment is the state of the machine's clocks in /proc/stat, in ticks.
type moment struct{ busy, all int64 }

// look reads the clocks; zero where there is no /proc.
func look() (m moment) {
	stat, _ := os.ReadFile("/proc/stat")
	var ticks [8]int64 // user nice system idle iowait irq softirq steal
	var label string
	fields := []any{&label}
	for i := range ticks {
		fields = append(fields, &ticks[i])
	}
	if _, err := fmt.Sscan(string(stat), fields...); err != nil {
		return moment{}
	}
	for i, n := range ticks {
		m.all += n
		if i != 3 && i != 4 {
			m.busy += n
		}
	}
	return m
}

// other is the share of the machine since m that was used by others than the ones
// whose CPU-seconds are given.
func (m moment) other(known float64) float64 {
	const ticksPerSecond = 100 // Linux ABI
	now := look()
	if now.all == m.all {
		return 0
	}
	return max(0, float64(now.busy-m.busy)-known*ticksPerSecond) / float64(now.all-m.all)
}
