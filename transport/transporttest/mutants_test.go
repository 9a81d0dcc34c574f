package transporttest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestMutantsAreCaught: the suite can fail. Each mutant is a cluster that does one
// thing wrong, and the check that has to notice it.
func TestMutantsAreCaught(t *testing.T) {
	for name, m := range destinationMutants() {
		t.Run(name, func(t *testing.T) {
			caught(t, m.by, func(t testing.TB) End {
				c := memory.New(variants()[m.variant])
				e := endOf(t, c)
				e.Destination = m.make(c.Client("mutant"))
				e.Another = func(testing.TB) Destination { return m.make(c.Client("another")) }
				if spoils, ok := e.Destination.(*leaderOnly); ok {
					e.Elect = func(t testing.TB, p cluster.Partition) {
						elect(t, c, p)
						spoils.putBack(c, p)
					}
				}
				return e
			})
		})
	}
}

func caught(t *testing.T, by string, open func(testing.TB) End) {
	t.Helper()
	found := failures(t, by, open)
	if len(found) == 0 {
		t.Errorf("%q has not noticed", by)
		return
	}
	t.Log(found[0])
}

type destinationMutant struct {
	variant string
	by      string
	make    func(*memory.Client) Destination
}

func destinationMutants() map[string]destinationMutant {
	rebased := func(c *memory.Client) Destination { return &anywhere{Client: c} }
	return map[string]destinationMutant{
		"lands at any offset":             {"cuts", "append elsewhere is refused", rebased},
		"lands at any offset, repeated":   {"full", "append again changes nothing", rebased},
		"lands at any offset, two":        {"produce", "two workers never make a mess", func(c *memory.Client) Destination { return &anywhere{Client: c, ends: true} }},
		"appends twice":                   {"full", "append lands at its offset", func(c *memory.Client) Destination { return &twice{c} }},
		"goes on after an error":          {"full", "after an error nothing lands until Ends", func(c *memory.Client) Destination { return &forgiving{c} }},
		"answers before it lands":         {"full", "bytes are given back with the answer", func(c *memory.Client) Destination { return &hasty{c} }},
		"answers twice":                   {"full", "Ends forgets what is under way", func(c *memory.Client) Destination { return &talkative{c} }},
		"never answers what it forgets":   {"full", "Ends forgets what is under way", func(c *memory.Client) Destination { return &silent{Client: c} }},
		"answers in another order":        {"full", "appends are answered in order", func(c *memory.Client) Destination { return &disorderly{silent{Client: c}} }},
		"claims gaps":                     {"cuts", "gaps", claims(func(t *fetcher.Traits) { t.Gaps = true })},
		"claims control batches":          {"cuts", "transactions", claims(func(t *fetcher.Traits) { t.ControlBatches = true })},
		"claims log append time":          {"produce", "timestamps of the broker", claims(func(t *fetcher.Traits) { t.LogAppendTime = true })},
		"claims to be read-only":          {"cuts", "writes of others", claims(func(t *fetcher.Traits) { t.ReadOnly = true })},
		"claims epochs":                   {"cuts", "epochs", claims(func(t *fetcher.Traits) { t.KeepsEpochs = true })},
		"takes gaps without the trait":    {"full", "gaps", claims(func(t *fetcher.Traits) { t.Gaps = false })},
		"claims to fill":                  {"produce", "holes are filled", claims(func(t *fetcher.Traits) { t.Fills = true })},
		"leaves holes out":                {"full", "holes are filled", func(c *memory.Client) Destination { return &leaving{c} }},
		"cuts without the trait":          {"full", "truncate", claims(func(t *fetcher.Traits) { t.Truncation = fetcher.TruncateNever })},
		"truncates nothing":               {"full", "truncate", func(c *memory.Client) Destination { return &cutting{c, func(o int64) int64 { return 1 << 40 }} }},
		"truncates after the batch":       {"full", "truncate", func(c *memory.Client) Destination { return &cutting{c, func(o int64) int64 { return (o + 4) / 5 * 5 }} }},
		"truncates one batch too many":    {"full", "truncate", func(c *memory.Client) Destination { return &cutting{c, func(o int64) int64 { return o - 1 }} }},
		"truncates the leader only":       {"cuts", "truncate reaches every replica", func(c *memory.Client) Destination { return &leaderOnly{Client: c} }},
		"trims one too far":               {"full", "trim", func(c *memory.Client) Destination { return &trimming{c, func(o int64) int64 { return o + 1 }} }},
		"trims to whole batches":          {"full", "trim", func(c *memory.Client) Destination { return &trimming{c, func(o int64) int64 { return o / 5 * 5 }} }},
		"trims nothing":                   {"full", "many partitions at once", func(c *memory.Client) Destination { return &trimming{c, func(o int64) int64 { return 0 }} }},
		"ignores a cancelled context":     {"full", "a cancelled context leaves nothing half done", func(c *memory.Client) Destination { return &deaf{c} }},
		"raises nothing":                  {"full", "epochs are raised", func(c *memory.Client) Destination { return &flat{c} }},
		"lowers epochs":                   {"cuts", "epochs are raised", claims(func(t *fetcher.Traits) { t.KeepsEpochs = true })},
		"fills for ever":                  {"full", "start at an offset", func(c *memory.Client) Destination { return &filling{c} }},
		"starts where it is":              {"full", "start at an offset", func(c *memory.Client) Destination { return &immobile{c} }},
		"fences nothing":                  {"full", "a fence ends a stretch", func(c *memory.Client) Destination { return &fenceless{c} }},
		"fences its own only":             {"produce", "a fence locks other workers out", func(c *memory.Client) Destination { return &fenceless{c} }},
		"does not know its own records":   {"full", "another worker takes over", func(c *memory.Client) Destination { return &looking{c, func(e *fetcher.End) { e.Ours = false }} }},
		"tells the high watermark's end":  {"full", "another worker takes over", func(c *memory.Client) Destination { return &looking{c, func(e *fetcher.End) { e.LogEnd-- }} }},
		"hides that a stretch is stopped": {"full", "a fence ends a stretch", func(c *memory.Client) Destination { return &looking{c, func(e *fetcher.End) { e.Stopped = false }} }},
		"hides foreign records":           {"produce", "writes of others", func(c *memory.Client) Destination { return &looking{c, func(e *fetcher.End) { e.Err = nil }} }},
		"reads the next batch":            {"full", "reading", func(c *memory.Client) Destination { return &reader{c, func(o int64) int64 { return o + 1 }} }},
		"reads behind the end":            {"full", "reading", func(c *memory.Client) Destination { return &reader{c, func(o int64) int64 { return min(o, 20) }} }},
		"drops metadata of commits":       {"full", "committed offsets", func(c *memory.Client) Destination { return &careless{c} }},
		"takes a name for a rule":         {"full", "access rules", func(c *memory.Client) Destination { return &careless{c} }},
		"creates what is there":           {"full", "topics are created and listed", func(c *memory.Client) Destination { return &careless{c} }},
		"does not grow":                   {"full", "topics grow", func(c *memory.Client) Destination { return &careless{c} }},
		"changes no settings":             {"full", "topic settings are changed", func(c *memory.Client) Destination { return &careless{c} }},
		"keeps what it was handed":        {"full", "bytes are given back with the answer", func(c *memory.Client) Destination { return &keeping{c} }},
		"commits beside members":          {"full", "a group with members", func(c *memory.Client) Destination { return &careless{c} }},
		"has a new id each time":          {"full", "cluster id", func(c *memory.Client) Destination { return &careless{c} }},
		"knows every topic":               {"full", "an unknown topic", func(c *memory.Client) Destination { return &looking{c, func(e *fetcher.End) { e.Err = nil }} }},
	}
}

// leaving takes holes by leaving them out.
type leaving struct{ *memory.Client }

func (m *leaving) Traits() fetcher.Traits {
	t := m.Client.Traits()
	t.Fills = true
	return t
}

func (m *leaving) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	n := len(batches)
	batches = slices.DeleteFunc(slices.Clone(batches), func(b cluster.Batch) bool { return b.Hole() })
	if len(batches) == 0 {
		batches = nil
	}
	m.Client.Append(p, batches, free, func(r fetcher.Result) {
		if r.Err == nil {
			r.Batches = n
		}
		done(r)
	})
}

// claims is a destination with other traits than it has.
func claims(change func(*fetcher.Traits)) func(*memory.Client) Destination {
	return func(c *memory.Client) Destination {
		t := c.Traits()
		change(&t)
		return &claiming{c, t}
	}
}

type claiming struct {
	*memory.Client
	traits fetcher.Traits
}

func (m *claiming) Traits() fetcher.Traits { return m.traits }

// anywhere appends at the log end, whatever offset a batch names.
type anywhere struct {
	*memory.Client
	ends bool // takes the partition back before each append
	mu   sync.Mutex
}

func (m *anywhere) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ends, err := m.Ends(context.Background(), []fetcher.Stretch{stretch(p)})
	if err != nil {
		return
	}
	at := ends[0].LogEnd
	for i := range batches {
		batches[i] = rebased(batches[i], at)
		at = batches[i].Next
	}
	m.Client.Append(p, batches, free, done)
}

func rebased(b cluster.Batch, at int64) cluster.Batch {
	h := batch.Header(slices.Clone(b.Bytes))
	h.Patch(batch.Patch{Base: at, LeaderEpoch: h.LeaderEpoch(), ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(), BaseSequence: h.BaseSequence()})
	return asBatch(h)
}

// twice appends everything a second time behind itself.
type twice struct{ *memory.Client }

func (m *twice) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	again := rebased(batches[len(batches)-1], batches[len(batches)-1].Next)
	m.Client.Append(p, batches, free, func(r fetcher.Result) { done(r) })
	m.Client.Append(p, []cluster.Batch{again}, nil, func(fetcher.Result) {})
}

// forgiving leaves out what does not fit and goes on behind it.
type forgiving struct{ *memory.Client }

func (m *forgiving) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	m.Client.Append(p, batches, free, func(r fetcher.Result) {
		if r.Err == nil {
			done(r)
			return
		}
		go func() { // Ends waits for answers that are being told
			ends, err := m.Ends(context.Background(), []fetcher.Stretch{stretch(p)})
			if err != nil || batches[0].Base <= ends[0].LogEnd {
				done(r)
				return
			}
			m.Client.Append(p, batches, nil, done) // as after a gap
		}()
	})
}

// hasty says that all is well before it looks at the bytes.
type hasty struct{ *memory.Client }

func (m *hasty) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	done(fetcher.Result{Partition: p, Next: batches[len(batches)-1].Next, Batches: len(batches)})
	m.Client.Append(p, batches, free, func(fetcher.Result) {})
}

type talkative struct{ *memory.Client }

func (m *talkative) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	m.Client.Append(p, batches, free, func(r fetcher.Result) { done(r); done(r) })
}

// silent keeps answers back until something else is appended.
type silent struct {
	*memory.Client
	mu   sync.Mutex
	kept func()
}

func (m *silent) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	m.Client.Append(p, batches, free, func(r fetcher.Result) {
		m.mu.Lock()
		kept := m.kept
		m.kept = func() { done(r) }
		m.mu.Unlock()
		if kept != nil {
			kept()
		}
	})
}

// disorderly answers two appends at a time, the later one first.
type disorderly struct{ silent }

func (m *disorderly) Append(p cluster.Partition, batches []cluster.Batch, free func(), done func(fetcher.Result)) {
	m.Client.Append(p, batches, free, func(r fetcher.Result) {
		m.mu.Lock()
		kept := m.kept
		m.kept = nil
		if kept == nil {
			m.kept = func() { done(r) }
		}
		m.mu.Unlock()
		if kept != nil {
			done(r)
			kept()
		}
	})
}

type cutting struct {
	*memory.Client
	to func(int64) int64
}

func (m *cutting) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	cuts = slices.Clone(cuts)
	for i := range cuts {
		cuts[i].Offset = max(0, m.to(cuts[i].Offset))
	}
	return m.Client.Truncate(ctx, cuts)
}

type trimming struct {
	*memory.Client
	to func(int64) int64
}

func (m *trimming) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	cuts = slices.Clone(cuts)
	for i := range cuts {
		cuts[i].Offset = m.to(cuts[i].Offset)
	}
	return m.Client.Trim(ctx, cuts)
}

// leaderOnly leaves the tail on the followers: it shows when one of them leads.
type leaderOnly struct {
	*memory.Client
	tail []byte
}

func (m *leaderOnly) Truncate(ctx context.Context, cuts []fetcher.Cut) []error {
	m.tail, _ = m.Read(ctx, cuts[0].Partition, cuts[0].Offset, 1<<20)
	return m.Client.Truncate(ctx, cuts)
}

func (m *leaderOnly) putBack(c *memory.Cluster, p cluster.Partition) {
	for w := batch.Walk(m.tail); w.Next(); {
		c.Inject(p, w.Header())
	}
	m.tail = nil
}

// deaf does not listen to ctx.
type deaf struct{ *memory.Client }

func (m *deaf) Trim(ctx context.Context, cuts []fetcher.Cut) []error {
	return m.Client.Trim(context.WithoutCancel(ctx), cuts)
}

type flat struct{ *memory.Client }

func (m *flat) RaiseEpochs(_ context.Context, raises []fetcher.EpochRaise) []error {
	return make([]error, len(raises))
}

type immobile struct{ *memory.Client }

func (m *immobile) StartAt(context.Context, fetcher.Stretch, int64, func(int64)) error { return nil }

type filling struct{ *memory.Client }

func (m *filling) Filling(cluster.Partition) (fetcher.Filling, bool) {
	return fetcher.Filling{To: 50}, true
}

type fenceless struct{ *memory.Client }

func (m *fenceless) Fence(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	return m.Ends(ctx, stretches)
}

type looking struct {
	*memory.Client
	change func(*fetcher.End)
}

func (m *looking) Ends(ctx context.Context, stretches []fetcher.Stretch) ([]fetcher.End, error) {
	ends, err := m.Client.Ends(ctx, stretches)
	for i := range ends {
		if ends[i].LogEnd > 0 || ends[i].Err != nil {
			m.change(&ends[i])
		}
	}
	return ends, err
}

type reader struct {
	*memory.Client
	at func(int64) int64
}

func (m *reader) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	return m.Client.Read(ctx, p, m.at(offset), maxBytes)
}

// careless is wrong about everything but records.
type careless struct{ *memory.Client }

func (m *careless) Commit(ctx context.Context, group string, offsets []cluster.Committed) error {
	offsets = slices.Clone(offsets)
	for i := range offsets {
		offsets[i].Metadata = ""
	}
	if err := m.Client.Commit(ctx, group, offsets); !errors.Is(err, cluster.ErrRefused) {
		return err
	}
	return nil
}

func (m *careless) CreateTopics(ctx context.Context, topics []cluster.NewTopic) []error {
	errs := m.Client.CreateTopics(ctx, topics)
	for i := range errs {
		if errors.Is(errs[i], cluster.ErrTopicExists) {
			errs[i] = nil
		}
	}
	return errs
}

func (m *careless) GrowTopics(_ context.Context, topics []cluster.Topic) []error {
	return make([]error, len(topics))
}

// DeleteACLs takes a name for a rule.
func (m *careless) DeleteACLs(ctx context.Context, bindings []cluster.Binding) []error {
	all, err := m.Client.ACLs(ctx)
	if err != nil {
		return []error{err}
	}
	m.Client.DeleteACLs(ctx, slices.DeleteFunc(all, func(b cluster.Binding) bool { return b.Name != bindings[0].Name }))
	return make([]error, len(bindings))
}

func (m *careless) AlterTopics(_ context.Context, all []topics.Changes) []error {
	return m.Client.AlterTopics(context.Background(), all[:len(all)-1])
}

// keeping never says that bytes are free.
type keeping struct{ *memory.Client }

func (m *keeping) Append(p cluster.Partition, batches []cluster.Batch, _ func(), done func(fetcher.Result)) {
	m.Client.Append(p, batches, nil, done)
}

func (m *careless) ID(context.Context) (string, error) { return unique("id"), nil }
