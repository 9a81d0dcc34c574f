package fetcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/cluster"
)

// A Fetcher copies the partitions it is assigned until they are removed or
// fail. Assign and Remove are safe for concurrent use.
type Fetcher struct {
	source Source
	log    Log
	report Report
	opts   Options
	traits Traits
	filler Filler // nil: the destination has not the ability

	box    *mailbox[command]
	budget *budget

	converters chan struct{} // taken to convert old formats

	count   atomic.Int64 // partitions assigned; sets each one's share of the budget
	busy    atomic.Int64 // partitions of which something is in flight
	brokers atomic.Int64 // sessions
	tasks   sync.WaitGroup

	recognizing chan struct{} // comparisons under way
	byID        atomic.Bool   // the source's last answer was to a fetch by topic ids

	// the router's own
	group    *errgroup.Group
	sessions map[int32]*session
	where    map[cluster.Partition]*place
	letting  map[cluster.Partition]chan struct{} // removed, and a session has not said yet that it has let go
	seeking  []*place                            // wait for a leader
	seekAt   time.Time                           // when the first of them is due
	freshAt  time.Time                           // the cluster is not asked again before
	asking   bool                                // a look for leaders is under way
}

// A place is where a partition is: in a session, or looking for one.
type place struct {
	t       *tracker
	session *session  // which may append for it
	leaving bool      // the session was told to let go and has not said so yet
	sought  bool      // is in seeking
	seekAt  time.Time // no look before
	fresh   bool      // the look must ask the cluster
	looks   int       // looks in a row that found no leader
	since   time.Time // when they began
}

// An Assignment is a partition to be copied from Next on.
type Assignment struct {
	Stretch   Stretch
	TopicID   cluster.TopicID
	There     cluster.TopicID // the id of the destination's topic, as Ends has told it
	Next      int64           // the destination's log end, as Ends has told it
	LastEpoch int32           // source epoch of the record before Next, or cluster.NoEpoch
	Trimmed   int64           // log start of the destination
	// Ceiling is the destination's leader epoch, as Ends has told it, or
	// cluster.NoEpoch. Progress.Ceiling begins with it.
	Ceiling   int32
	Progress  *Progress     // figures of the partition; nil: nobody reads them
	RoundTrip time.Duration // to the destination, as Ends has told it
	// Context ends when the assignment is of no interest any more; then it is not
	// begun. nil: never.
	Context context.Context
}

type command struct {
	assign     []Assignment
	remove     []cluster.Partition
	ack        func()
	moved      *moved
	lost       *session
	partitions []cluster.Partition
	leaders    *sought
	failed     *tracker
	let        *letGo
	vacated    *place
}

// moved is a partition that a session has given up.
type moved struct {
	t    *tracker
	from *session
	to   cluster.Leader
}

// New makes a Fetcher. Nothing happens before Run.
func New(source Source, log Log, report Report, opts Options) *Fetcher {
	opts = opts.withDefaults()
	filler, _ := log.(Filler)
	return &Fetcher{
		source: source, log: log, report: report, opts: opts, traits: log.Traits(), filler: filler,
		box: newMailbox[command](), budget: newBudget(opts.BudgetBytes),
		converters: make(chan struct{}, conversions),
		sessions:   map[int32]*session{}, where: map[cluster.Partition]*place{},
		letting: map[cluster.Partition]chan struct{}{}, recognizing: make(chan struct{}, mostRecognized),
	}
}

// Run fetches until ctx ends and returns nil, with no goroutine left behind. The
// destination must go on answering what it was handed before.
func (f *Fetcher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	f.group = group
	group.Go(func() error { return f.route(ctx) })
	err := group.Wait()
	f.closeBox()
	f.tasks.Wait()
	return err
}

// Assign begins to copy partitions. One that is assigned already begins anew,
// when its old session has let go and the destination has been asked again.
func (f *Fetcher) Assign(as ...Assignment) { f.box.put(command{assign: as}) }

// Remove ends the copying of partitions. When it returns nothing more of them is
// handed to the destination; what was handed over before may still land, and
// Log.Ends waits for it. It does not wait for a broker. The error is that of ctx.
func (f *Fetcher) Remove(ctx context.Context, ps ...cluster.Partition) error {
	done := make(chan struct{})
	var once sync.Once
	if !f.box.put(command{remove: ps, ack: func() { once.Do(func() { close(done) }) }}) {
		return nil // Run has returned
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// share is how many bytes of one partition may be in flight.
func (f *Fetcher) share() share { return f.budget.share(f.count.Load(), f.busy.Load()) }

// spawn runs a short task that Run waits for.
func (f *Fetcher) spawn(task func()) {
	f.tasks.Add(1)
	go func() {
		defer f.tasks.Done()
		task()
	}()
}

// failed is a session's word that a partition has left for good.
func (f *Fetcher) failed(t *tracker, err error) {
	f.box.put(command{failed: t})
	f.report.Failed(t.partition, err)
}
