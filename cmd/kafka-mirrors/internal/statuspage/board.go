package statuspage

import (
	"context"
	"sync"
	"time"

	"github.com/clustermirror/mirror"
)

// Mirror is one mirror as it is shown.
type Mirror struct {
	mirror.Overview
	Status mirror.Status `json:"status"`
	// BytesPerSecond and RecordsPerSecond are of the last sample, Throughput bytes a second
	// of each sample kept, the oldest first.
	BytesPerSecond   float64   `json:"bytesPerSecond"`
	RecordsPerSecond float64   `json:"recordsPerSecond"`
	Throughput       []float64 `json:"throughput"`
	// LagSeconds is how old the newest record is that was copied of the partition which is
	// farthest behind in time; 0 where none is behind, nil while it is not known.
	LagSeconds *float64 `json:"lagSeconds"`
	Health     string   `json:"health"` // ok, troubled, failed, standby or starting
}

// Event is something that happened.
type Event struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Status is all that is shown: the document of /status.
type Status struct {
	Time time.Time `json:"time"`
	// Health is the worst mirror's, which is its worst partition's.
	Health  string   `json:"health"`
	Error   string   `json:"error,omitempty"` // why mirrors are shown as they were
	Mirrors []Mirror `json:"mirrors"`
	Events  []Event  `json:"events"` // the newest first
}

const (
	// every is how often samples are taken, samples how many are kept: five minutes.
	every   = 2 * time.Second
	samples = 150
	events  = 100
)

// Look gives the mirrors and how they stand; those that run elsewhere, or not, too.
type Look func(context.Context) ([]mirror.Description, error)

// Board keeps what is shown. Its methods are safe for concurrent use.
type Board struct {
	look Look

	mu      sync.Mutex
	now     Status
	history map[string]*history
	events  []Event // the oldest first
}

// history is of one mirror.
type history struct {
	before mirror.Status
	rates  []float64
}

// New makes a board that shows nothing yet.
func New(look Look) *Board {
	return &Board{look: look, history: map[string]*history{}, now: Status{Health: "starting"}}
}

// Event adds a line. It never waits.
func (b *Board) Event(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events = append(b.events, Event{time.Now(), text}); len(b.events) > events {
		b.events = b.events[len(b.events)-events:]
	}
}

// Run takes samples until ctx ends.
func (b *Board) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		all, err := b.look(ctx)
		if ctx.Err() != nil {
			return
		}
		b.sample(all, err, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample takes in how mirrors stand now; with an error they are shown as they were.
func (b *Board) sample(all []mirror.Description, err error, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Time, b.now.Error = at, ""
	if err != nil {
		b.now.Error, b.now.Health = err.Error(), failed
		return
	}
	b.now.Mirrors = make([]Mirror, len(all))
	kept := make(map[string]*history, len(all))
	for i, d := range all {
		h := b.history[d.Name]
		if h == nil {
			h = &history{}
		}
		kept[d.Name] = h
		b.now.Mirrors[i] = h.take(d)
	}
	b.history = kept
	b.now.Health = worst(b.now.Mirrors)
}

// take adds a sample, and gives the mirror as it is shown.
func (h *history) take(d mirror.Description) Mirror {
	m := Mirror{Overview: d.Overview, Status: d.Status, Health: healthOf(d), LagSeconds: behind(d.Status)}
	if took := d.Status.Time.Sub(h.before.Time).Seconds(); !h.before.Time.IsZero() && took > 0 {
		// A partition that leaves the mirror takes its figures with it.
		m.BytesPerSecond = max(0, float64(d.Status.Bytes-h.before.Bytes)/took)
		m.RecordsPerSecond = max(0, float64(d.Status.Records-h.before.Records)/took)
	}
	h.before = d.Status
	if h.rates = append(h.rates, m.BytesPerSecond); len(h.rates) > samples {
		h.rates = h.rates[1:]
	}
	m.Throughput = append([]float64{}, h.rates...)
	return m
}

// Now is what is shown at this moment.
func (b *Board) Now() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.now
	s.Events = make([]Event, len(b.events))
	for i, e := range b.events {
		s.Events[len(b.events)-1-i] = e
	}
	return s
}

// The words of health.
const (
	ok       = "ok"
	standby  = "standby"
	starting = "starting"
	troubled = "troubled"
	failed   = "failed"
)

var rank = map[string]int{ok: 0, standby: 1, starting: 2, troubled: 3, failed: 4}

// worst is the health of all.
func worst(all []Mirror) string {
	most := ok
	for _, m := range all {
		if rank[m.Health] > rank[most] {
			most = m.Health
		}
	}
	return most
}

// healthOf is a mirror's: its worst partition's.
func healthOf(d mirror.Description) string {
	switch {
	case d.Status.Standby:
		return standby
	case !d.Running && d.Reason != "":
		return failed
	case !d.Running, d.Status.Synced == nil && d.Status.SyncError == "":
		return starting
	}
	return d.Status.Health
}

// behind is the most that a partition is behind in time. Those that are farthest behind in
// offsets are among the worst.
func behind(s mirror.Status) *float64 {
	most, known := 0.0, s.Lag == 0
	for _, p := range s.Worst {
		if p.Lag > 0 && p.NewestRecord != nil {
			most, known = max(most, s.Time.Sub(*p.NewestRecord).Seconds()), true
		}
	}
	if !known {
		return nil
	}
	return &most
}
