package file

import (
	"maps"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// entry is a value and its line in the file. Neither is changed once it is made.
type entry[T any] struct {
	value T
	line  []byte
}

// state is what is stored of one mirror.
type state struct {
	records    map[cluster.Partition]*entry[coordinator.Record]
	intents    map[string]*entry[coordinator.Intent]
	notes      map[string]*entry[note]
	definition *entry[coordinator.Definition]
	revision   int64
}

func newState() *state {
	return &state{
		records: map[cluster.Partition]*entry[coordinator.Record]{},
		intents: map[string]*entry[coordinator.Intent]{},
		notes:   map[string]*entry[note]{},
	}
}

func (s *state) clone() *state {
	return &state{
		records: maps.Clone(s.records), intents: maps.Clone(s.intents), notes: maps.Clone(s.notes),
		definition: s.definition, revision: s.revision,
	}
}

// draft is the state as it will be, and where it differs from what is stored.
type draft struct {
	*state
	touched struct {
		records map[cluster.Partition]struct{}
		intents map[string]struct{}
		notes   map[string]struct{}
		other   bool // definition or revision
	}
	said []coordinator.Intent // intents that were given a revision, in order
}

func newDraft(stored *state) *draft {
	d := &draft{state: stored.clone()}
	d.forget()
	return d
}

// forget takes the draft for what is stored.
func (d *draft) forget() {
	d.touched.records = map[cluster.Partition]struct{}{}
	d.touched.intents = map[string]struct{}{}
	d.touched.notes = map[string]struct{}{}
	d.touched.other = false
	d.said = nil
}

func (d *draft) changed() bool {
	return d.touched.other || len(d.touched.records)+len(d.touched.intents)+len(d.touched.notes) > 0
}

// setRecord writes a record, or forgets it (nil).
func (d *draft) setRecord(p cluster.Partition, e *entry[coordinator.Record]) {
	set(d.records, p, e)
	d.touched.records[p] = struct{}{}
}

// setIntent writes an intent, or forgets it (nil).
func (d *draft) setIntent(topic string, e *entry[coordinator.Intent]) {
	set(d.intents, topic, e)
	d.touched.intents[topic] = struct{}{}
}

// setNote writes a note, or forgets it (nil).
func (d *draft) setNote(key string, e *entry[note]) {
	set(d.notes, key, e)
	d.touched.notes[key] = struct{}{}
}

func (d *draft) setDefinition(e *entry[coordinator.Definition]) {
	d.definition, d.touched.other = e, true
}

// settle makes the places that were touched in the draft the same in both: as drafted
// when that is stored, else as it was.
func (d *draft) settle(stored *state, written bool) {
	from, to := stored, d.state
	if written {
		from, to = d.state, stored
	}
	for p := range d.touched.records {
		set(to.records, p, from.records[p])
	}
	for topic := range d.touched.intents {
		set(to.intents, topic, from.intents[topic])
	}
	for key := range d.touched.notes {
		set(to.notes, key, from.notes[key])
	}
	to.definition, to.revision = from.definition, from.revision
	d.forget()
}

func set[K comparable, T any](m map[K]*entry[T], key K, e *entry[T]) {
	if e == nil {
		delete(m, key)
		return
	}
	m[key] = e
}
