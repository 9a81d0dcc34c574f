// Package coordinator decides what each partition of a mirror should be doing.
//
// The decisions are one pure function over one stored record per partition. Run
// stores every decision before anything is done about it, so that a crash
// between any two lines leaves a record from which the same thing is done again.
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// ErrEnded: Run has returned, so nothing will come of it.
var ErrEnded = errors.New("coordinator has ended")

// Performer does what was decided.
type Performer interface {
	// Perform starts the side effect and returns at once; it is called from the
	// coordinator's goroutine after rec was stored. The outcome comes back through
	// Post, with the effect's Seq. ctx ends when the effect is superseded, when the
	// partition is lost to another worker, or when Run ends: then nothing more may
	// be begun for it, and its outcome is of no interest. An effect may be asked
	// for again after a crash that hid its outcome.
	Perform(ctx context.Context, rec Record, e Effect)
}

// Options of a Coordinator. The zero value is good.
type Options struct {
	// Logger gets state changes and trouble with the store. Default: silent.
	Logger *slog.Logger
	// RetryMin is the wait after a first retriable failure; it doubles with each
	// further one. Default: 1 second.
	RetryMin time.Duration
	// RetryMax is the longest wait. Default: 300 seconds.
	RetryMax time.Duration
	// Jitter spreads waits by this part of them, up and down, below RetryMax;
	// negative means none. Default: 0.2.
	Jitter float64
	// OnChange is told of every stored change, in order, from the coordinator's
	// goroutine and outside all locks. It must not block. Default: nobody is told.
	OnChange func(before, after Record, err error)
	// OnLoad is given all stored records, once, when All has them and before anything is done about them,
	// from the coordinator's goroutine. It must not block. Default: nobody is.
	OnLoad func([]Record)
	// OnLost is told when a partition is another worker's by now, from the coordinator's
	// goroutine. It must not block. Default: nobody is.
	OnLost func()
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	v.Logger = cmp.Or(v.Logger, slog.New(slog.DiscardHandler))
	v.RetryMin = cmp.Or(v.RetryMin, time.Second)
	v.RetryMax = max(v.RetryMin, cmp.Or(v.RetryMax, 300*time.Second))
	v.Jitter = min(1, max(0, cmp.Or(v.Jitter, 0.2)))
	return v
}

// Coordinator decides about the partitions of one mirror. Its methods are safe
// for concurrent use.
type Coordinator struct {
	mirror  string
	store   Store
	perf    Performer
	opts    Options
	queue   *queue
	board   *board
	started atomic.Bool
}

// New makes the coordinator of a mirror. Nothing happens before Run, except
// that posted events are kept. opts may be nil.
func New(mirror string, store Store, perf Performer, opts *Options) *Coordinator {
	return &Coordinator{
		mirror: mirror, store: store, perf: perf, opts: opts.withDefaults(),
		queue: newQueue(), board: newBoard(),
	}
}

// Run loads the records, takes every partition over (owner epoch + 1), goes on
// with what each was doing, and then works on events until ctx ends; then it
// returns nil. Trouble with the store is waited out. Run can be called once.
func (c *Coordinator) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		return errors.New("coordinator: Run was called before")
	}
	ctx, cancel := context.WithCancel(ctx)
	l := newLoop(c)
	defer func() {
		cancel() // also ends every effect
		l.end(c.queue.end())
		close(c.board.ended)
	}()
	return l.run(ctx)
}

// Post hands events over, in order, and never blocks. After Run has returned
// their Ack gets ErrEnded.
func (c *Coordinator) Post(events ...Event) {
	if c.queue.put(events) {
		return
	}
	for _, ev := range events {
		if ev.Ack != nil {
			ev.Ack(ErrEnded)
		}
	}
}

// Snapshot is what is known of a partition; false when nothing is.
func (c *Coordinator) Snapshot(p cluster.Partition) (Snapshot, bool) { return c.board.snapshot(p) }

// All copies every snapshot, in no particular order: O(partitions).
func (c *Coordinator) All() []Snapshot { return c.board.all() }

// Counts is the number of partitions in each state that any is in. It costs the
// same for any number of partitions.
func (c *Coordinator) Counts() map[State]int { return c.board.count() }

// Intent is the last stored wish of an operator for a topic that is known here;
// false when there is none. Discovery asks before it starts a new topic.
func (c *Coordinator) Intent(topic string) (Intent, bool) { return c.board.intent(topic) }

// Await blocks until ok holds for the latest snapshot of each partition, one
// that does not exist yet included. It returns the cause when ctx ends, and
// ErrEnded when Run does. ok is called from Await's goroutine, outside locks.
func (c *Coordinator) Await(ctx context.Context, ps []cluster.Partition, ok func(Snapshot) bool) error {
	return c.board.await(ctx, ps, ok)
}
