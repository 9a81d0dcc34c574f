package simulation

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
)

// process is one engine with its own handles: what an operating system's process
// would be. Several of one mirror may run at a time.
type process struct {
	w        *world
	mirror   string // "AB"
	name     string // "AB#2": of its clients
	src, dst *memory.Client
	m        *mirror.Mirror
	cancel   context.CancelFunc
	done     chan struct{} // closed when Run has returned
	err      error         // what Run returned; read after done

	mu      sync.Mutex
	dead    bool
	hold    chan struct{} // while it stands still; closed when it goes on
	faults  []armed
	crashIn int64  // calls until it dies; 0: not
	crashOn string // only calls of that kind count; empty: all
	last    bool   // the call it dies at is carried out

	owner map[cluster.Partition]int32 // epochs that its writes carried

	told told
}

// told is what the process's events have said.
type told struct {
	mu        sync.Mutex
	skipped   map[cluster.Partition][]cluster.Span
	truncated map[cluster.Partition][]cluster.Span
}

func (t *told) note(to map[cluster.Partition][]cluster.Span, p cluster.Partition, span cluster.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to[p] = append(to[p], span)
}

// armed are requests that something will happen to.
type armed struct {
	call string
	left int64
	kind Op
	wait time.Duration
}

// verdict is what happens to a request.
type verdict struct {
	hold      <-chan struct{} // it waits for that
	lost      bool
	lostReply bool
	late      time.Duration
	lateReply time.Duration
	last      bool // it is carried out, and the process dies
}

func (p *process) source() string      { return p.mirror[:1] }
func (p *process) destination() string { return p.mirror[1:] }

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// judge decides what becomes of a request that is about to be made.
func (p *process) judge(call string) (v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return v
	}
	v.hold = p.hold
	if p.crashIn > 0 && (p.crashOn == "" || p.crashOn == call) {
		if p.crashIn--; p.crashIn == 0 {
			if !p.last {
				p.die()
				return v
			}
			v.last = true
			p.w.crashing.Go(func() { // once the request has gone out
				time.Sleep(time.Millisecond)
				p.crash()
			})
			return v
		}
	}
	for i := range p.faults {
		f := &p.faults[i]
		if f.left == 0 || f.call != "" && f.call != call {
			continue
		}
		f.left--
		switch f.kind {
		case Lose:
			v.lost = true
		case LoseReply:
			v.lostReply = true
		case Late:
			v.late = f.wait
		case LateReply:
			v.lateReply = f.wait
		}
		return v
	}
	return v
}

// fault is judge for requests to clusters.
func (p *process) fault(op memory.Op) memory.Fault {
	v := p.judge(string(op.Call))
	switch {
	case v.hold != nil:
		return memory.Fault{Kind: memory.DelayRequest, Until: v.hold}
	case v.last:
		return memory.Fault{Kind: memory.DelayAnswer, Until: p.w.never}
	case v.lost:
		return memory.Fault{Kind: memory.LoseRequest}
	case v.lostReply:
		return memory.Fault{Kind: memory.LoseAnswer}
	case v.late > 0:
		return memory.Fault{Kind: memory.DelayRequest, Delay: v.late}
	case v.lateReply > 0:
		return memory.Fault{Kind: memory.DelayAnswer, Delay: v.lateReply}
	}
	return memory.Fault{}
}

// crash ends the process where it stands: nothing of it is carried out any more but
// what is on its way.
func (p *process) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.die()
}

func (p *process) die() {
	if p.dead {
		return
	}
	p.dead = true
	p.src.Crash()
	p.dst.Crash()
	p.cancel()
}

// suspend makes the process stand still: its requests wait on their way.
func (p *process) suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil && !p.dead {
		p.hold = make(chan struct{})
	}
}

func (p *process) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

func (p *process) arm(f armed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
}

func (p *process) crashAt(calls int64, on string, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashIn, p.crashOn, p.last = calls, on, last
}

// heal ends everything that a schedule has done to the process.
func (p *process) heal() {
	p.wake()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.crashIn = nil, 0
}

// ended reports whether Run has returned.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end lets Run return and waits for it; it is an error when that takes long.
func (p *process) end() error {
	p.wake()
	p.cancel()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	select {
	case <-p.done:
		return p.err
	case <-patience.C:
		return fmt.Errorf("liveness: Run of %s does not return a minute after its context ended", p.name)
	}
}

// options are those of the setup.
func (p *process) options() *mirror.Options {
	set := p.w.setup
	o := &mirror.Options{
		Topics:       mirror.Topics{Include: []string{topicName}},
		Store:        &store{Memory: p.w.stores[p.destination()], p: p, at: p.destination()},
		Positions:    &store{Memory: p.w.stores[p.source()], p: p, at: p.source()},
		SyncInterval: 10 * time.Second, GroupTimeout: 3 * time.Second, AlignmentTimeout: 30 * time.Second,
		RetryMin: time.Second, RetryMax: 4 * time.Second,
		Fetch:              fetcher.Options{MaxWait: 5 * time.Second, StallAfter: 4 * time.Second, RetryBudget: 30 * time.Second},
		DiscardLocalWrites: set.Discard, Scratch: set.Scratch,
		Logger: p.w.logger,
		Events: mirror.Events{
			Skipped:   func(e mirror.SkippedEvent) { p.told.note(p.told.skipped, e.Partition, e.Span) },
			Truncated: func(e mirror.TruncatedEvent) { p.told.note(p.told.truncated, e.Partition, e.Span) },
		},
	}
	if set.Unclean {
		o.UncleanRecovery = []string{topicName}
	}
	if set.GapFails {
		o.Fetch.RetentionGap = fetcher.RetentionFail
	}
	return o
}

// launch starts a process of a mirror.
func (w *world) launch(name string) (*process, error) {
	w.launched[name]++
	p := &process{w: w, mirror: name, name: fmt.Sprintf("%s#%d", name, w.launched[name]), done: make(chan struct{})}
	p.told.skipped, p.told.truncated = map[cluster.Partition][]cluster.Span{}, map[cluster.Partition][]cluster.Span{}
	p.src, p.dst = w.clusters[p.source()].Client(p.name), w.clusters[p.destination()].Client(p.name)
	var err error
	if p.m, err = mirror.New(name, p.src, &watched{Client: p.dst, p: p}, p.options()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.mu.Lock()
	w.byName[p.name] = p
	w.mu.Unlock()
	w.processes[name] = append(w.processes[name], p)
	go func() {
		p.err = p.m.Run(ctx)
		close(p.done)
	}()
	for !p.m.Status().Running && !p.ended() {
		runtime.Gosched() // what is asked for before it runs is only recorded
	}
	return p, nil
}
