package simulation

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// kept is how many records of each partition the source keeps: memory would grow with
// the log otherwise.
const kept = 2000

// warm is after how many hours retention has begun.
const warm = 3

// TestDays runs a mirror for a day, or with -seven-days for seven: four partitions, a
// record a second to one of them, an election a minute, retention. What it holds at
// the end it held after some hours: memory, goroutines, records in the store.
func TestDays(t *testing.T) {
	days := 1
	if *sevenDays {
		days = 7
	}
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Setup{Partitions: 4, Kind: "keeps"}, slog.New(slog.DiscardHandler))
		if err := w.act(Step{Op: Start, Mirror: "AB"}); err != nil {
			t.Fatal(err)
		}
		w.calm, w.oracle.homes = true, nil // it remembers every record
		var first usage
		for hour := range 24 * days {
			anHour(t, w)
			if hour == warm-1 {
				first = w.usage()
			}
		}
		last := w.usage()
		t.Logf("after %d hours %v, after %d days %v", warm, first, days, last)
		if last.heap > first.heap+first.heap/2 || last.goroutines > first.goroutines+8 || last.stored > first.stored+first.stored/2 {
			t.Errorf("it grows: after %d hours %v, after %d days %v", warm, first, days, last)
		}
		status := w.current("AB").m.Status()
		if status.Health != "ok" || status.Lag > 0 || status.EventsDropped > 0 {
			t.Errorf("health %s, lag %d, %d events dropped: %+v", status.Health, status.Lag, status.EventsDropped, status.Worst)
		}
		if want := int64(days) * 24 * 3600; status.Records != want {
			t.Errorf("%d records copied, want %d", status.Records, want)
		}
		for _, p := range w.partitions("A") {
			if err := w.equal(w.current("AB"), p); err != nil {
				t.Error(err)
			}
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d simulated days in %v", days, time.Since(begin).Round(time.Millisecond))
}

// anHour is 60 minutes of load; it ends at rest.
func anHour(t *testing.T, w *world) {
	t.Helper()
	a := w.clusters["A"]
	for minute := range 60 {
		for second := range 60 {
			p := cluster.Partition{Topic: topicName, Partition: int32(second % 4)}
			if _, err := a.Produce(p, w.fresh("A", 1)...); err != nil {
				t.Fatal(err)
			}
			pass(t, w, time.Second)
		}
		p := cluster.Partition{Topic: topicName, Partition: int32(minute % 4)}
		for b := range int32(3) {
			_ = a.Elect(p, 1+(b+int32(minute/4))%3) // refused where there is no replica
		}
		if st, err := a.State(p); err == nil && st.Replicas[0].LogEnd > kept {
			if err := a.DeleteRecords(p, st.Replicas[0].LogEnd-kept); err != nil {
				t.Error(err)
			}
		}
	}
	pass(t, w, 20*time.Second) // the destination's log start follows
}

// usage is what a process holds.
type usage struct {
	heap       uint64
	goroutines int
	stored     int // bytes of text
}

func (u usage) String() string {
	return fmt.Sprintf("%d KiB, %d goroutines, %d bytes stored", u.heap>>10, u.goroutines, u.stored)
}

func (w *world) usage() usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	stored := 0
	for _, rec := range w.records("B", "AB") {
		stored += len(fmt.Sprint(rec))
	}
	return usage{m.HeapAlloc, runtime.NumGoroutine(), stored}
}

// pass lets virtual time pass.
func pass(t *testing.T, w *world, d time.Duration) {
	t.Helper()
	if err := w.act(Step{Op: Advance, For: d}); err != nil {
		t.Fatal(err)
	}
}
