package bench

import (
	"os"
	"strings"
	"testing"
)

// TestCopy measures every data set and prints the table.
func TestCopy(t *testing.T) {
	p := clusters(t)
	p.warm(t, "mirror", "loop")
	times := 1
	if *full {
		times = 3
	}
	var rows []row
	for _, s := range sets(t) {
		r := row{set: s, wire: p.prepare(t.Context(), t, s), runs: map[string][]run{}}
		for range times { // one after the other, so that a busy minute hits all of them
			for _, name := range []string{"mirror", "pipe", "loop"} {
				r.runs[name] = append(r.runs[name], p.measure(t.Context(), t, name, s, r.wire))
			}
		}
		rows = append(rows, r)
	}
	var table strings.Builder
	report(&table, rows)
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load now: %s%s", load, &table)
	for _, r := range rows {
		for _, b := range r.bars() {
			if b.have > shared*b.allow {
				t.Errorf("%v: more than %d times the bar", b, shared)
			}
		}
	}
}

// BenchmarkCopy gives each copy of each data set as a benchmark of its own.
func BenchmarkCopy(b *testing.B) {
	p := clusters(b)
	p.warm(b, "mirror", "loop")
	for _, s := range sets(b) {
		wire := p.prepare(b.Context(), b, s)
		for _, name := range []string{"mirror", "pipe", "loop"} {
			b.Run(s.name+"/"+name, func(b *testing.B) {
				b.SetBytes(s.valueBytes())
				var sum usage
				for b.Loop() {
					u := p.measure(b.Context(), b, name, s, wire)
					sum.CPU += u.CPU
					sum.Seconds += u.Seconds
					sum.Peak = max(sum.Peak, u.Peak)
				}
				gb := float64(wire) * float64(b.N) / 1e9
				b.ReportMetric(sum.CPU/gb, "cpu-s/GB")
				b.ReportMetric(float64(s.valueBytes())*float64(b.N)/1e6/sum.Seconds, "copied-MB/s")
				b.ReportMetric(float64(sum.Peak)/1e6, "peak-MB")
			})
		}
	}
}
