package mirror_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
)

// lifting is a destination that gives producers other ids from one on.
type lifting struct {
	*hooked
	from *atomic.Int64 // 0: none yet
}

func (l lifting) ProducersFrom() (id int64, ok bool) {
	id = l.from.Load()
	return id, id > 0
}

// TestOtherProducerIDs: that the destination has others is shown, and told once.
func TestOtherProducerIDs(t *testing.T) {
	var from atomic.Int64
	var told []mirror.ProducersEvent
	options := everything()
	options.SyncInterval = 10 * time.Second
	options.Events.Producers = func(e mirror.ProducersEvent) { told = append(told, e) }
	inBubble(t, &hooked{mock: newMock("A", "orders")}, lifting{&hooked{mock: newMock("B")}, &from}, options, func(t *testing.T, m *mirror.Mirror) {
		pass(time.Minute)
		if s := m.Status(); s.ProducersFrom != nil || len(told) > 0 {
			t.Errorf("before: %v, told %v", s.ProducersFrom, told)
		}
		from.Store(1_004_000)
		pass(time.Minute)
		if s := m.Status(); s.ProducersFrom == nil || *s.ProducersFrom != 1_004_000 {
			t.Errorf("from %v", s.ProducersFrom)
		}
		if want := []mirror.ProducersEvent{{Mirror: m.Status().Mirror, From: 1_004_000}}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
