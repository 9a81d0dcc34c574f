package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// What commands ask a daemon that only it knows, or can do, goes through notes of the state
// store: a command writes a letter with a question, the daemon writes the same letter with an
// answer, again and again while the question stands, and the command takes the letter away.
const (
	// office is under whose name the letters stand. No mirror can be called that.
	office = "@daemon"
	// boxes is how many letters there may be at a time: notes that were taken away leave
	// something behind, so that their keys are few.
	boxes = 16
)

// times of letters; other ones in tests.
type postTimes struct {
	look  time.Duration // how often a daemon and a command look for letters
	beat  time.Duration // how often a daemon writes an answer anew though it is the same
	first time.Duration // for which a first answer is waited for
	other time.Duration // for which a daemon that begins waits for the answer of another one
	quiet time.Duration // after which a daemon that has written before is taken for dead
}

var post = postTimes{look: 250 * time.Millisecond, beat: 2 * time.Second, first: 5 * time.Second, other: 2 * time.Second, quiet: 8 * time.Second}

// The questions.
const (
	askMirrors  = "mirrors"  // all mirrors in one line each
	askDescribe = "describe" // all about one mirror
	askFollow   = "follow"   // how a mirror fares, until nobody asks any more
	askStart    = "start"    // the same, after topics were looked for
	askPromote  = "promote"  // a planned stop
	askDelete   = "delete"   // to let go of a mirror
)

type question struct {
	ID     string    `json:"id"`
	Ask    string    `json:"ask"`
	Mirror string    `json:"mirror,omitempty"`
	Topics []string  `json:"topics,omitempty"`
	Since  int64     `json:"since,omitempty"` // revision of the definition that is to be followed
	At     time.Time `json:"at"`
	For    float64   `json:"for"` // seconds, after which nobody waits any more
}

type answer struct {
	By    string `json:"by"`
	Beat  int    `json:"beat"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"` // that the command exits with for Error

	Mirrors     []mirror.Overview   `json:"mirrors,omitempty"`
	Description *mirror.Description `json:"description,omitempty"`
	Topics      []mirror.Topic      `json:"topics,omitempty"`
	Fares       *fares              `json:"fares,omitempty"`
	Results     []topicResult       `json:"results,omitempty"`
}

// fares is how a mirror fares while something is waited for.
type fares struct {
	Running   bool              `json:"running"`
	Reason    string            `json:"reason,omitempty"` // why it does not run
	Same      bool              `json:"same,omitempty"`   // source and destination are one cluster
	Contacted bool              `json:"contacted"`        // both clusters have said who they are
	Looked    bool              `json:"looked,omitempty"` // for topics, since the question was asked
	Trouble   string            `json:"trouble,omitempty"`
	Missing   []string          `json:"missing,omitempty"`
	Refused   map[string]string `json:"refused,omitempty"`
	Started   []string          `json:"started,omitempty"` // topics that are meant, and to be copied
	Lag       int64             `json:"lag"`               // of those
}

// topicResult is what an operation came to for a topic.
type topicResult struct {
	Topic string `json:"topic"`
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
}

type letter struct {
	Question question `json:"question"`
	Answer   *answer  `json:"answer,omitempty"`
}

// asked is a question that stands.
type asked struct {
	notes    coordinator.Notes
	key      string
	question question
	raw      []byte    // the letter as it was last seen
	since    time.Time // when it was first seen so
	last     *answer
	first    time.Duration // for which a first answer is waited for
}

// errNoDaemon: no daemon answers.
var errNoDaemon = errors.New("no daemon answers: is kafka-mirrors daemon running for this cluster?")

// ask writes a letter.
func ask(ctx context.Context, notes coordinator.Notes, q question) (*asked, error) {
	q.ID, q.At = rand.Text(), time.Now().UTC()
	if deadline, ok := ctx.Deadline(); ok {
		q.For = time.Until(deadline).Seconds()
	}
	raw, err := json.Marshal(letter{Question: q})
	if err != nil {
		return nil, err
	}
	for {
		all, err := notes.Notes(ctx, office)
		if err != nil {
			return nil, err
		}
		key := emptyBox(all)
		refused, err := notes.SwapNotes(ctx, office, map[string][]byte{key: all[key]}, map[string][]byte{key: raw})
		if err != nil {
			return nil, err
		}
		if len(refused) == 0 {
			return &asked{notes: notes, key: key, question: q, raw: raw, since: time.Now(), first: post.first}, nil
		}
	}
}

// emptyBox is the key for a new letter: where none lies, or else the oldest.
func emptyBox(all map[string][]byte) string {
	var oldest string
	var at time.Time
	for i := range boxes {
		key := fmt.Sprintf("letter-%02d", i)
		var l letter
		if all[key] == nil || json.Unmarshal(all[key], &l) != nil {
			return key
		}
		if oldest == "" || l.Question.At.Before(at) {
			oldest, at = key, l.Question.At
		}
	}
	return oldest
}

// look gives the answer as it stands; nil while there is none. It fails once no daemon
// has written for too long.
func (a *asked) look(ctx context.Context) (*answer, error) {
	all, err := a.notes.Notes(ctx, office)
	if err != nil {
		return nil, err
	}
	var l letter
	if json.Unmarshal(all[a.key], &l) != nil || l.Question.ID != a.question.ID {
		return a.last, errNoDaemon // what nobody fetches for long is thrown away
	}
	if string(all[a.key]) != string(a.raw) {
		a.raw, a.since, a.last = all[a.key], time.Now(), l.Answer
	}
	patience := post.quiet
	if a.last == nil {
		patience = a.first
	}
	if (a.last == nil || !a.last.Done) && time.Since(a.since) > patience {
		return a.last, errNoDaemon
	}
	return a.last, nil
}

// withdraw takes the letter away, so that nobody goes on with it.
func (a *asked) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 3 {
		if refused, err := a.notes.SwapNotes(ctx, office, map[string][]byte{a.key: a.raw}, map[string][]byte{a.key: nil}); err != nil || len(refused) == 0 {
			return
		}
		if _, err := a.look(ctx); err != nil {
			return
		}
	}
}

// once asks, waits until the answer is whole, and withdraws.
func once(ctx context.Context, notes coordinator.Notes, q question) (*answer, error) {
	return within(ctx, notes, q, post.first)
}

// within is once with a first answer that is waited for so long.
func within(ctx context.Context, notes coordinator.Notes, q question, first time.Duration) (*answer, error) {
	a, err := ask(ctx, notes, q)
	if err != nil {
		return nil, err
	}
	a.first = first
	defer a.withdraw()
	tick := time.NewTicker(post.look)
	defer tick.Stop()
	for {
		got, err := a.look(ctx)
		switch {
		case err != nil:
			return nil, err
		case got != nil && got.Error != "":
			return got, got.err()
		case got != nil && got.Done:
			return got, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// err is what the daemon says went wrong.
func (a *answer) err() error { return &outcome{a.Code, errors.New(a.Error)} }
