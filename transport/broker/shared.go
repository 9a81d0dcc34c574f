package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Notes is a place for small values that processes share, by mirror and key; the state
// store of a mirror is one, see coordinator.Notes.
type Notes interface {
	Notes(ctx context.Context, mirror string) (map[string][]byte, error)
	SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) (refused []string, err error)
}

// Shared keeps identities and topics' own settings among the notes of a mirror, for all
// its processes: Identities and Overrides for a host with a state store. Their keys are
// "identity:" with a broker id, "topic:" and "missed:" with a topic's name, "producers" and "workers".
type Shared struct {
	notes  Notes
	mirror string
}

const (
	identityNote = "identity:"
	topicNote    = "topic:"
	missedNote   = "missed:"
	liftedNote   = "producers"
	secretNote   = "workers"
)

// NewShared keeps them under the name of a mirror, or of another group of processes that
// take each other's place.
func NewShared(notes Notes, mirror string) *Shared { return &Shared{notes, mirror} }

// Identities is the Identities that the notes have.
func (s *Shared) Identities() Identities { return sharedIdentities{s} }

// Overrides is the Overrides that the notes have.
func (s *Shared) Overrides() Overrides { return sharedOverrides{s} }

type sharedIdentities struct{ s *Shared }

func (i sharedIdentities) All(ctx context.Context) ([]Kept, error) {
	notes, err := i.s.notes.Notes(ctx, i.s.mirror)
	if err != nil {
		return nil, err
	}
	var all []Kept
	for key, note := range notes {
		if !strings.HasPrefix(key, identityNote) {
			continue
		}
		var stored storedIdentity
		if err := json.Unmarshal(note, &stored); err != nil {
			return nil, fmt.Errorf("note %q: %w", key, err)
		}
		kept, err := stored.kept()
		if err != nil {
			return nil, fmt.Errorf("note %q: %w", key, err)
		}
		all = append(all, kept)
	}
	slices.SortFunc(all, func(a, b Kept) int { return cmp.Compare(a.Broker, b.Broker) })
	return all, nil
}

func (i sharedIdentities) Swap(ctx context.Context, was, now *Kept) (bool, error) {
	id, err := brokerOf(was, now)
	if err != nil {
		return false, err
	}
	key := identityNote + strconv.Itoa(int(id))
	refused, err := i.s.notes.SwapNotes(ctx, i.s.mirror, map[string][]byte{key: was.note()}, map[string][]byte{key: now.note()})
	return err == nil && len(refused) == 0, err
}

func (k *Kept) note() []byte {
	if k == nil {
		return nil
	}
	return document(k.stored())
}

func document(v any) []byte {
	b, _ := json.Marshal(v) // of texts and numbers: never fails
	return b
}

// storedTopic is a topic's own settings as JSON.
type storedTopic struct {
	Version int `json:"v"`
	Own     Own `json:"own"`
}

type sharedOverrides struct{ s *Shared }

// all are the notes of topics, as they stand and read.
func (o sharedOverrides) all(ctx context.Context) (notes map[string][]byte, own map[string]Own, err error) {
	notes, err = o.s.notes.Notes(ctx, o.s.mirror)
	if err != nil {
		return nil, nil, err
	}
	own = make(map[string]Own)
	for key, note := range notes {
		topic, ok := strings.CutPrefix(key, topicNote)
		if !ok {
			continue
		}
		var stored storedTopic
		err := json.Unmarshal(note, &stored)
		if err == nil && stored.Version != storedVersion {
			err = fmt.Errorf("version %d is not known, %d is", stored.Version, storedVersion)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("note %q: %w", key, err)
		}
		own[topic] = stored.Own
	}
	return notes, own, nil
}

func (o sharedOverrides) Load(ctx context.Context, topics ...string) (map[string]Own, error) {
	if len(topics) == 0 {
		return nil, ctx.Err()
	}
	_, own, err := o.all(ctx)
	return some(own, topics), err
}

func (o sharedOverrides) Topics(ctx context.Context) ([]string, error) {
	_, own, err := o.all(ctx)
	return slices.Sorted(maps.Keys(own)), err
}

func (o sharedOverrides) Save(ctx context.Context, all map[string]Own) error {
	now := make(map[string][]byte, len(all))
	for topic, own := range all {
		now[topicNote+topic] = document(storedTopic{storedVersion, own})
	}
	return o.put(ctx, now)
}

func (o sharedOverrides) Delete(ctx context.Context, topics []string) error {
	now := make(map[string][]byte, len(topics))
	for _, topic := range topics {
		now[topicNote+topic], now[missedNote+topic] = nil, nil
	}
	return o.put(ctx, now)
}

// storedMissed is what a topic's replicas have missed, as JSON.
type storedMissed struct {
	Version int `json:"v"`
	Missed
}

func (o sharedOverrides) Missed(ctx context.Context) (map[string]Missed, error) {
	notes, err := o.s.notes.Notes(ctx, o.s.mirror)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Missed)
	for key, note := range notes {
		topic, ok := strings.CutPrefix(key, missedNote)
		if !ok {
			continue
		}
		var stored storedMissed
		err := json.Unmarshal(note, &stored)
		if err == nil && stored.Version != storedVersion {
			err = fmt.Errorf("version %d is not known, %d is", stored.Version, storedVersion)
		}
		if err != nil {
			return nil, fmt.Errorf("note %q: %w", key, err)
		}
		out[topic] = stored.Missed
	}
	return out, nil
}

func (o sharedOverrides) SaveMissed(ctx context.Context, all map[string]Missed) error {
	now := make(map[string][]byte, len(all))
	for topic, m := range all {
		now[missedNote+topic] = nil
		if len(m.Cuts) > 0 {
			now[missedNote+topic] = document(storedMissed{storedVersion, m})
		}
	}
	return o.put(ctx, now)
}

// storedLifted is from which producer id on those of the source have others, as JSON.
type storedLifted struct {
	Version int   `json:"v"`
	From    int64 `json:"from"`
}

func (o sharedOverrides) Lifted(ctx context.Context) (from int64, ok bool, err error) {
	notes, err := o.s.notes.Notes(ctx, o.s.mirror)
	note, ok := notes[liftedNote]
	if err != nil || !ok {
		return 0, false, err
	}
	var stored storedLifted
	if err = json.Unmarshal(note, &stored); err == nil && stored.Version != storedVersion {
		err = fmt.Errorf("version %d is not known, %d is", stored.Version, storedVersion)
	}
	if err != nil {
		return 0, false, fmt.Errorf("note %q: %w", liftedNote, err)
	}
	return stored.From, true, nil
}

func (o sharedOverrides) SaveLifted(ctx context.Context, from int64) error {
	return o.put(ctx, map[string][]byte{liftedNote: document(storedLifted{storedVersion, from})})
}

// put writes notes, whatever stands there.
func (o sharedOverrides) put(ctx context.Context, now map[string][]byte) error {
	for len(now) > 0 {
		stands, err := o.s.notes.Notes(ctx, o.s.mirror)
		if err != nil {
			return err
		}
		refused, err := o.s.notes.SwapNotes(ctx, o.s.mirror, stands, now)
		if err != nil {
			return err
		}
		maps.DeleteFunc(now, func(key string, _ []byte) bool { return !slices.Contains(refused, key) })
	}
	return ctx.Err()
}
