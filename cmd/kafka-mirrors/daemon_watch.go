package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/mirror"
)

// watcher prints how the mirrors of a daemon fare.
type watcher struct {
	c       *mirror.Controller
	shown   *screen
	said    map[string]said // by mirror
	last    time.Time       // when all were printed
	trouble string          // why the mirrors cannot be listed
}

// said is what was printed of a mirror: what is worth another line when it changes, and
// the status that rates are counted from.
type said struct {
	key    string
	before mirror.Status
}

// run prints a line for each mirror when something changed, and now and then.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		all, err := w.c.List(ctx)
		if err == nil {
			w.tell(ctx, all)
			w.trouble = ""
		} else if text := err.Error(); text != w.trouble && ctx.Err() == nil {
			w.trouble = text
			w.shown.say(text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) tell(ctx context.Context, all []mirror.Overview) {
	again := time.Since(w.last) >= quiet
	if again {
		w.last = time.Now()
	}
	if len(all) == 0 && again {
		w.shown.say("no mirror is defined")
	}
	for _, o := range all {
		was := w.said[o.Name]
		line, now := w.of(ctx, o, was)
		if again || now.key != was.key {
			w.shown.say(line)
			w.said[o.Name] = now
		}
	}
	for name := range w.said {
		if !slices.ContainsFunc(all, func(o mirror.Overview) bool { return o.Name == name }) {
			delete(w.said, name)
			w.shown.say(name + ": deleted")
		}
	}
}

// of is a mirror in one line.
func (w *watcher) of(ctx context.Context, o mirror.Overview, was said) (string, said) {
	if !o.Running {
		line := o.Name + ": is being opened"
		if o.Reason != "" {
			line = o.Name + ": does not run: " + o.Reason
		}
		return line, said{key: line}
	}
	d, err := w.c.Describe(ctx, o.Name)
	if err != nil {
		return o.Name + ": " + err.Error(), said{key: err.Error()}
	}
	now := said{health(d.Status) + states(d.Status) + losses(d.Status) + strings.Join(problems(d.Status, false), "\n"), d.Status}
	return statusLine(d.Status, was.before), now
}

// say prints a line that stays to stdout.
func (s *screen) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, stamp(time.Now())+printable(line))
}

// namedEvents are events as lines that begin with the mirror's name.
func namedEvents(print func(string), all bool) mirror.Events {
	of := func(name string) mirror.Events {
		return events(func(line string) { print(name + ": " + line) }, all)
	}
	return mirror.Events{
		State:     func(e mirror.StateEvent) { of(e.Mirror).State(e) },
		Stalled:   func(e mirror.StalledEvent) { of(e.Mirror).Stalled(e) },
		Trimmed:   func(e mirror.TrimmedEvent) { of(e.Mirror).Trimmed(e) },
		Skipped:   func(e mirror.SkippedEvent) { of(e.Mirror).Skipped(e) },
		Truncated: func(e mirror.TruncatedEvent) { of(e.Mirror).Truncated(e) },
		Aborted:   func(e mirror.AbortedEvent) { of(e.Mirror).Aborted(e) },
		Producers: func(e mirror.ProducersEvent) { of(e.Mirror).Producers(e) },
		Topic:     func(e mirror.TopicEvent) { of(e.Mirror).Topic(e) },
		Config:    func(e mirror.ConfigEvent) { of(e.Mirror).Config(e) },
		Sync:      func(e mirror.SyncEvent) { of(e.Mirror).Sync(e) },
		Groups:    func(e mirror.GroupsEvent) { of(e.Mirror).Groups(e) },
		Group:     func(e mirror.GroupEvent) { of(e.Mirror).Group(e) },
	}
}
