package kafka

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/batch"
)

// view is what the log says, as far as it was read. All of it is guarded by the
// tail's lock.
//
// Of the values of a slot the one with the highest turn stands; of several with that
// turn, the first in the log. Read in the order of the log this is: what raises the
// turn stands. It holds for any part of the log that compaction leaves, see decision
// 0007.
type view struct {
	parts    []part
	mirrors  map[string]*mirrorView
	attempts map[string]*attempt // by key; only those somebody waits for
	// misplaced: a key stands in another partition than it belongs to, so the number
	// of partitions is not what it was when it was written.
	misplaced error
}

// part is one partition of the state topic.
type part struct {
	next  int64 // everything below was read; -1 before the log start is known
	epoch int32 // leader epoch of the last batch read
	// hole is the end of the last offsets that were missing in the log.
	hole int64
	cuts int // how often its log was found cut
	// dead are keys of values that do not stand, and are not deleted yet.
	dead map[string]struct{}
}

// mirrorView is what is known of one mirror.
type mirrorView struct {
	records    map[cluster.Partition]*value
	definition *value
	notes      map[string]*value
	intents    map[string]coordinator.Intent
	watchers   map[chan []coordinator.Intent]struct{}
	changed    []coordinator.Intent // not given to the watchers yet
}

// attempt is one write of a value. It is decided when it was read back.
type attempt struct {
	from int64 // what was read when it was made
	seen bool
	won  bool // it stood when it was read
	// sure: nothing was missing in the log between from and it, so that won is the
	// truth for every reader.
	sure bool
}

func newView(partitions int32) view {
	v := view{
		parts:    make([]part, partitions),
		mirrors:  map[string]*mirrorView{},
		attempts: map[string]*attempt{},
	}
	for n := range v.parts {
		v.parts[n] = newPart()
	}
	return v
}

func newPart() part { return part{next: -1, epoch: cluster.NoEpoch, dead: map[string]struct{}{}} }

func (v *view) partitions() int32 { return int32(len(v.parts)) }

// mirror gives a mirror's part, made when it is not there.
func (v *view) mirror(name string) *mirrorView {
	m := v.mirrors[name]
	if m == nil {
		m = &mirrorView{
			records:  map[cluster.Partition]*value{},
			notes:    map[string]*value{},
			intents:  map[string]coordinator.Intent{},
			watchers: map[chan []coordinator.Intent]struct{}{},
		}
		v.mirrors[name] = m
	}
	return m
}

// get gives what stands in a slot, graves included; nil when nothing ever did.
func (v *view) get(s slot) *value {
	got := v.peek(s)
	if got != nil {
		got.read(s.kind())
	}
	return got
}

func (v *view) set(s slot, to *value) {
	m := v.mirror(s.mirror)
	switch {
	case s.kind() == kindDefinition:
		m.definition = to
	case s.kind() == kindNote && to == nil:
		delete(m.notes, s.note)
	case s.kind() == kindNote:
		m.notes[s.note] = to
	case to == nil:
		delete(m.records, s.partition)
	default:
		m.records[s.partition] = to
	}
}

// apply takes one batch of partition n. warn hears of what cannot be read.
func (v *view) apply(n int32, h batch.Header, d *batch.Decoder, warn func(key string, err error)) error {
	p := &v.parts[n]
	if h.Next() <= p.next {
		return nil
	}
	if err := h.Check(); err != nil {
		return err
	}
	at := p.next
	if !h.Control() { // a marker is none of ours, and a hole
		for d.Reset(h); d.Next(); {
			r := d.Record()
			if r.Offset < at || r.Phantom {
				continue
			}
			if r.Offset > at {
				p.hole = r.Offset
			}
			at = r.Offset + 1
			v.take(n, r, warn)
		}
		if err := d.Err(); err != nil {
			return err
		}
	}
	if at < h.Next() {
		p.hole = h.Next()
	}
	p.next, p.epoch = h.Next(), h.LeaderEpoch()
	return nil
}

// take takes one record.
func (v *view) take(n int32, r batch.Record, warn func(key string, err error)) {
	text := string(r.Key)
	k, err := parseKey(text)
	if err != nil {
		return // a kind that this version does not know
	}
	if home := v.home(k); home != n {
		if v.misplaced == nil {
			v.misplaced = fmt.Errorf("%w: key %s stands in partition %d and belongs to %d of %d: the number of partitions was changed",
				cluster.ErrCorrupt, text, n, home, len(v.parts))
		}
		return
	}
	switch {
	case k.kind == kindIntent:
		v.takeIntent(k, r, warn)
	case r.Value == nil:
		delete(v.parts[n].dead, text)
		if now := v.peek(k.slot); now != nil && now.key == text { // deleted by hand
			v.set(k.slot, nil)
		}
	default:
		v.takeValue(n, k, text, r)
	}
}

func (v *view) home(k key) int32 {
	if k.kind == kindIntent {
		return MirrorPartitionOf(k.slot.mirror, v.partitions())
	}
	return k.slot.home(v.partitions())
}

// peek is get without reading the value.
func (v *view) peek(s slot) *value {
	m := v.mirrors[s.mirror]
	if m == nil {
		return nil
	}
	switch s.kind() {
	case kindDefinition:
		return m.definition
	case kindNote:
		return m.notes[s.note]
	}
	return m.records[s.partition]
}

func (v *view) takeValue(n int32, k key, text string, r batch.Record) {
	p := &v.parts[n]
	now := v.peek(k.slot)
	won := now == nil || k.turn > now.turn
	if won {
		if now != nil {
			p.dead[now.key] = struct{}{}
		}
		v.set(k.slot, &value{turn: k.turn, key: text, raw: append([]byte{}, r.Value...)})
	} else {
		p.dead[text] = struct{}{}
	}
	if a := v.attempts[text]; a != nil && !a.seen {
		a.seen, a.won, a.sure = true, won, p.hole <= a.from
	}
}

func (v *view) takeIntent(k key, r batch.Record, warn func(key string, err error)) {
	m := v.mirror(k.slot.mirror)
	if r.Value == nil {
		delete(m.intents, k.topic)
		return
	}
	in, err := decodeIntent(r.Value, r.Offset)
	if err == nil && in.Topic != k.topic {
		err = fmt.Errorf("it names topic %q", in.Topic)
	}
	if err != nil {
		warn(string(r.Key), err)
		return
	}
	m.intents[k.topic] = in
	if len(m.watchers) > 0 {
		m.changed = append(m.changed, in)
	}
}

// tell gives changed intents to those who watch. Each channel holds at most one
// piece, which grows until it is taken; as sends are made under the lock only, they
// never block.
func (v *view) tell() {
	for _, m := range v.mirrors {
		if len(m.changed) == 0 {
			continue
		}
		for ch := range m.watchers {
			var piece []coordinator.Intent
			select {
			case piece = <-ch:
			default:
			}
			ch <- append(piece[:len(piece):len(piece)], m.changed...)
		}
		m.changed = nil
	}
}

// forget drops all that was read of partition n: its log was cut, and is read again
// from the beginning.
func (v *view) forget(n int32) {
	for name, m := range v.mirrors {
		for p := range m.records {
			if PartitionOf(name, p, v.partitions()) == n {
				delete(m.records, p)
			}
		}
		if MirrorPartitionOf(name, v.partitions()) == n {
			m.definition = nil
			clear(m.notes)
			clear(m.intents)
		}
	}
	cuts := v.parts[n].cuts
	v.parts[n] = newPart()
	v.parts[n].cuts = cuts + 1
}
