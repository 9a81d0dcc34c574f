package simulation

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A finding is a schedule that broke a promise, as a shard's process tells of it.
type finding struct {
	Seed uint64
	Step int
	Rule string
	Text string
}

func (f finding) String() string {
	return fmt.Sprintf("seed %d, step %d: %s", f.Seed, f.Step+1, f.Text)
}

// findingMark begins a line that holds a finding.
const findingMark = "FINDING "

// stuck is how long one schedule may take in real time.
const stuck = 20 * time.Second

// TestShard plays the seeds of one process. It does nothing unless it is started by
// another test of this package.
func TestShard(t *testing.T) {
	var at atomic.Uint64
	at.Store(*shardFrom)
	ended := make(chan struct{})
	defer close(ended)
	go watchdog(&at, ended)
	quiet := slog.New(slog.DiscardHandler)
	for s := *shardFrom; s < *shardFrom+*shardCount; s++ {
		at.Store(s)
		err := Play(t, Generate(s), quiet, nil)
		if err == nil {
			continue
		}
		f := finding{Seed: s, Text: err.Error(), Rule: "error"}
		if b, ok := err.(*Broken); ok {
			f.Step, f.Rule = b.Step, b.Rule()
		}
		tell(f)
	}
}

func tell(f finding) {
	line, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%s\n", findingMark, line)
}

// watchdog ends a process in which a schedule stands still in real time.
func watchdog(at *atomic.Uint64, ended chan struct{}) {
	last, since := uint64(0), time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if now := at.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > stuck {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			tell(finding{Seed: last, Rule: "stuck", Text: "the schedule stands still:\n" + string(stacks)})
			os.Exit(1)
		}
	}
}

// shards plays seeds in processes of their own, two at a time: each has one
// processor, and nothing that is left behind lives long. found is told of findings as
// they come; false ends it all.
func shards(t *testing.T, binary string, from, count uint64, found func(finding) bool) {
	const perProcess = 1000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	next, end := from, from+count
	take := func() (first, n uint64) {
		mu.Lock()
		defer mu.Unlock()
		first, n = next, min(perProcess, end-next)
		next += n
		return first, n
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for first, n := take(); n > 0 && ctx.Err() == nil; first, n = take() {
				err := shard(ctx, binary, first, n, func(f finding) {
					mu.Lock()
					defer mu.Unlock()
					if ctx.Err() == nil && !found(f) {
						cancel()
					}
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("process of seeds %d to %d: %v", first, first+n-1, err)
					cancel()
				}
			}
		})
	}
	workers.Wait()
}

// shard runs one process. Its error holds what it wrote beside findings.
func shard(ctx context.Context, binary string, first, n uint64, found func(finding)) error {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestShard$", "-test.timeout=0",
		fmt.Sprintf("-shard.from=%d", first), fmt.Sprintf("-shard.count=%d", n))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var rest, stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), findingMark)
		var f finding
		if ok && json.Unmarshal([]byte(text), &f) == nil {
			found(f)
		} else {
			fmt.Fprintln(&rest, lines.Text())
		}
	}
	if err := cmp.Or(lines.Err(), cmd.Wait()); err != nil {
		text := append(stderr.Bytes(), rest.Bytes()...)
		return fmt.Errorf("%w\n%s", err, text[:min(len(text), 20_000)])
	}
	return nil
}

// loud is a logger that shows virtual time.
func loud(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.String("at", a.Value.Time().Format("04:05.000"))
		}
		return a
	}}))
}
