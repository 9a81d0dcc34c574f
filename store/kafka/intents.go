package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/clustermirror/mirror/coordinator"
)

// SaveIntents implements coordinator.Store. The revision of an intent is its offset in
// the topic plus one: all intents of a mirror stand in one partition.
func (s *Store) SaveIntents(ctx context.Context, mirror string, intents []coordinator.Intent) ([]int64, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := s.ready(ctx)
	if err != nil || len(intents) == 0 {
		return nil, err
	}
	pairs := make([]pair, 0, len(intents))
	for _, in := range intents {
		b, err := encodeIntent(in)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{intentKey(mirror, in.Topic), b})
	}
	if err := t.log(ctx, MirrorPartitionOf(mirror, int32(len(t.all))), pairs); err != nil {
		return nil, err
	}
	return t.revisions(mirror, intents), nil
}

// revisions are those of the last intents that were read back.
func (t *tail) revisions(mirror string, intents []coordinator.Intent) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, out := t.view.mirror(mirror), make([]int64, len(intents))
	for i, in := range intents {
		out[i] = m.intents[in.Topic].Revision
	}
	return out
}

// dropIntents forgets the intents of topics.
func (t *tail) dropIntents(ctx context.Context, mirror string, topics []string) error {
	pairs := make([]pair, 0, len(topics))
	for _, topic := range topics {
		pairs = append(pairs, pair{intentKey(mirror, topic), nil})
	}
	return t.log(ctx, MirrorPartitionOf(mirror, int32(len(t.all))), pairs)
}

// pair is a key whose last value counts, whoever writes it.
type pair struct {
	key   string
	value []byte // nil deletes
}

// log appends pairs to one partition, in order, until they were read back. What was
// appended without our knowing is appended again.
func (t *tail) log(ctx context.Context, part int32, pairs []pair) error {
	fails := 0
	var nobody patience
	for len(pairs) > 0 {
		p := &pile{part: part, cuts: t.cuts(part)}
		n := 0
		for ; n < len(pairs) && p.bytes < batchBytes; n++ {
			p.add(pairs[n].key, pairs[n].value)
		}
		err := t.append(ctx, map[int32]*pile{part: p}, fails > 0)[part]
		if err == nil {
			pairs, fails = pairs[n:], 0
			continue
		}
		if !passing(err) || nobody.over(err) || !sleep(ctx, pause(fails)) {
			return at(t.topic, err)
		}
		fails++
	}
	return nil
}

func (t *tail) cuts(part int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.parts[part].cuts
}

// Watch implements coordinator.Store. It sees the intents of every Store on the topic.
// The channel is closed, too, when the topic is deleted or replaced, when reading it is
// forbidden, and by Close. It creates the topic.
func (s *Store) Watch(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
	bounded, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := s.open(bounded, true)
	if err != nil {
		return nil, err
	}
	if err := t.sync(bounded); err != nil {
		return nil, err
	}
	return t.watch(ctx, mirror)
}

func (t *tail) watch(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return nil, at(t.topic, t.err)
	}
	m := t.view.mirror(mirror)
	ch := make(chan []coordinator.Intent, 1)
	ch <- slices.Collect(maps.Values(m.intents))
	m.watchers[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, ok := m.watchers[ch]; ok {
			delete(m.watchers, ch)
			close(ch)
		}
	})
	return ch, nil
}
