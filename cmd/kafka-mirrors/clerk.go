package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

var errUnknownQuestion = errors.New("the daemon does not know this question: is it older than the command?")

// clerk answers the letters of commands in a daemon.
type clerk struct {
	c      *mirror.Controller
	notes  coordinator.Notes
	by     string // who writes the answers
	logger *slog.Logger
}

// seen is a letter as it lay there.
type seen struct {
	raw   string
	since time.Time
	end   context.CancelFunc // of who answers it here; nil when nobody does
}

// run looks for letters until ctx ends.
func (k *clerk) run(ctx context.Context) {
	var answering sync.WaitGroup
	defer answering.Wait()
	lying := map[string]*seen{}
	defer func() {
		for _, s := range lying {
			s.close()
		}
	}()
	tick := time.NewTicker(post.look)
	defer tick.Stop()
	for ; ; <-tick.C {
		if ctx.Err() != nil {
			return
		}
		all, err := k.notes.Notes(ctx, office)
		if err != nil {
			k.logger.Debug("questions of commands cannot be read", "err", err)
			continue
		}
		for key, s := range lying {
			if all[key] == nil {
				s.close()
				delete(lying, key)
			}
		}
		for key, raw := range all {
			k.sort(ctx, lying, key, raw, &answering)
		}
	}
}

func (s *seen) close() {
	if s.end != nil {
		s.end()
	}
}

// sort decides what is done about a letter: one that nobody answers is answered, one that
// has lain there long enough is thrown away.
func (k *clerk) sort(ctx context.Context, lying map[string]*seen, key string, raw []byte, answering *sync.WaitGroup) {
	s := lying[key]
	var l letter
	if json.Unmarshal(raw, &l) != nil {
		return // a later version's
	}
	if s == nil || s.raw != string(raw) {
		mine := s != nil && s.end != nil && l.Answer != nil && l.Answer.By == k.by
		if s != nil && !mine {
			s.close()
			s = nil
		}
		if s == nil {
			s = &seen{}
			lying[key] = s
		}
		s.raw, s.since = string(raw), time.Now()
	}
	waits := time.Duration(l.Question.For * float64(time.Second))
	switch quiet := time.Since(s.since); {
	case quiet > max(waits, time.Minute):
		k.notes.SwapNotes(ctx, office, map[string][]byte{key: raw}, map[string][]byte{key: nil}) // else the next time
	case s.end != nil:
	case l.Answer == nil || !l.Answer.Done && quiet > post.quiet:
		ctx, end := context.WithTimeout(ctx, max(waits, time.Second))
		s.end = end
		answering.Go(func() { k.answer(ctx, key, raw, l.Question) })
	}
}

// answer writes answers until the last one, or until the letter is gone.
func (k *clerk) answer(ctx context.Context, key string, raw []byte, q question) {
	w := k.worker(ctx, q)
	defer w.end()
	tick := time.NewTicker(post.look)
	defer tick.Stop()
	var last []byte
	var wrote time.Time
	for beat := 0; ; {
		now := w.now(ctx)
		now.By = k.by
		text, err := json.Marshal(now)
		if err != nil {
			k.logger.Error("an answer cannot be written", "ask", q.Ask, "err", err)
			return
		}
		if string(text) != string(last) || time.Since(wrote) > post.beat {
			last, wrote = text, time.Now()
			beat++
			now.Beat = beat
			next, _ := json.Marshal(letter{q, &now}) // as before
			refused, err := k.notes.SwapNotes(ctx, office, map[string][]byte{key: raw}, map[string][]byte{key: next})
			if err != nil || len(refused) > 0 {
				return // withdrawn, or the store is away: the command asks again
			}
			raw = next
		}
		if now.Done {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// worker is at work on one question.
type worker struct {
	k *clerk
	q question

	begun   time.Time // when the definition asked for was first seen followed
	started bool

	cancel   context.CancelFunc
	promoted chan answer // one, when that is through
}

func (k *clerk) worker(ctx context.Context, q question) *worker {
	w := &worker{k: k, q: q, cancel: func() {}}
	if q.Ask != askPromote {
		return w
	}
	w.promoted = make(chan answer, 1)
	whole := time.Duration(q.For * float64(time.Second))
	toTell := min(max(whole/10, 2*time.Second), whole/2, 10*time.Second) // what remained
	ctx, w.cancel = context.WithTimeout(ctx, whole-toTell)
	go func() {
		results, err := k.c.Promote(ctx, q.Mirror, q.Topics...)
		a := answer{Done: true, Results: resultsOf(results)}
		a.fail(err)
		w.promoted <- a
	}()
	return w
}

// end waits until nothing is done any more.
func (w *worker) end() {
	w.cancel()
	if w.promoted != nil {
		w.promoted <- <-w.promoted
	}
}

func (a *answer) fail(err error) {
	if err != nil {
		a.Error, a.Code, a.Done = spoken(err).Error(), codeOf(err), true
	}
}

func resultsOf(all []mirror.TopicResult) []topicResult {
	out := make([]topicResult, len(all))
	for i, r := range all {
		if out[i].Topic = r.Topic; r.Err != nil {
			out[i].Error, out[i].Code = spoken(r.Err).Error(), codeOf(r.Err)
		}
	}
	return out
}

// now is the answer as it is now.
func (w *worker) now(ctx context.Context) (a answer) {
	c, q := w.k.c, w.q
	switch q.Ask {
	case askMirrors:
		var err error
		a.Mirrors, err = c.List(ctx)
		a.Done = true
		a.fail(err)
		return a
	case askDescribe:
		d, err := c.Describe(ctx, q.Mirror)
		a.Description, a.Done = &d, true
		if err == nil && len(q.Topics) > 0 {
			a.Topics, err = w.topics(ctx)
		}
		a.fail(err)
		return a
	case askDelete:
		a.Done = true
		a.fail(c.Delete(ctx, q.Mirror))
		return a
	case askFollow, askStart:
	case askPromote:
		select {
		case a = <-w.promoted:
			w.promoted <- a
			return a
		default:
		}
	default:
		a.fail(&outcome{exitFailed, errUnknownQuestion})
		return a
	}
	if err := w.fares(ctx, &a); err != nil && q.Ask != askPromote {
		a.fail(err)
	}
	return a
}

// topics are those that are asked for.
func (w *worker) topics(ctx context.Context) ([]mirror.Topic, error) {
	all, err := w.k.c.Topics(ctx, w.q.Mirror)
	if err != nil || len(w.q.Topics) == 0 {
		return all, err
	}
	filter, err := topics.NewFilter(w.q.Topics, nil)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(t mirror.Topic) bool { return !filter.Matches(t.Name) }), nil
}

// fares says how the mirror fares, and has topics looked for when that is asked for.
func (w *worker) fares(ctx context.Context, a *answer) error {
	d, err := w.k.c.Describe(ctx, w.q.Mirror)
	if err != nil {
		return err
	}
	f := &fares{Running: d.Running && d.Revision >= w.q.Since, Reason: d.Reason, Contacted: d.SourceID != "" && d.DestinationID != "",
		Trouble: d.Status.SyncError, Missing: d.Status.Missing, Refused: d.Status.Refused}
	f.Same = errors.Is(d.Err, mirror.ErrSameCluster)
	if w.q.Ask == askStart && f.Running {
		if !w.started {
			w.begun = time.Now()
			_, _ = w.k.c.Start(ctx, w.q.Mirror, w.q.Topics...) // what it refuses was refused to the command
			w.started = true
		}
		f.Looked = d.Status.Synced != nil && d.Status.Synced.After(w.begun)
	}
	all, err := w.topics(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if len(t.Partitions) > 0 && t.Partitions[0].Desired == coordinator.WantMirroring || t.Refused != "" {
			f.Started = append(f.Started, t.Name)
		}
		for _, p := range t.Partitions {
			if p.State != coordinator.StateStopped {
				f.Lag += p.Lag
			}
		}
	}
	a.Fares = f
	return nil
}
