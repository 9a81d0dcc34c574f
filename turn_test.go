package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
)

// inTurn is a destination that several processes have.
type inTurn struct {
	*mock
	turn chan struct{}
}

func (d *inTurn) Turn(ctx context.Context) (bool, error) {
	select {
	case <-d.turn:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

func (m *mock) asked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.looks) > 0
}

// TestTurn: nothing is begun before it is our turn, and what another process has taken over
// ends the mirror.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := coordinator.NewMemory()
		process := func(d mirror.Destination) (*mirror.Mirror, func() error) {
			o := quick("orders")
			o.Store = store
			m := newMirror(t, newMock("A", "orders"), d, o)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- m.Run(ctx) }()
			return m, func() error { cancel(); return <-done }
		}
		b := &inTurn{newMock("B"), make(chan struct{})}
		one, end := process(b)
		time.Sleep(time.Minute)
		if !one.Status().Standby || !one.Status().Running || b.asked() {
			t.Fatalf("it is not our turn: %+v, asked %v", one.Status(), b.asked())
		}
		b.turn <- struct{}{}
		time.Sleep(time.Minute)
		if one.Status().Standby || !b.asked() {
			t.Fatalf("it is our turn: %+v, asked %v", one.Status(), b.asked())
		}
		other, endOther := process(b.mock) // which waits for nobody
		time.Sleep(time.Minute)
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := one.Pause(bounded, "orders"); err == nil {
			t.Error("paused what is another's")
		}
		synctest.Wait()
		if err := end(); !errors.Is(err, mirror.ErrSuperseded) {
			t.Errorf("Run: %v", err)
		}
		if other.Status().Standby {
			t.Errorf("%+v", other.Status())
		}
		if err := endOther(); err != nil {
			t.Error(err)
		}

		waits, end := process(&inTurn{newMock("B"), make(chan struct{})})
		time.Sleep(time.Minute)
		if err := end(); err != nil || waits.Status().Standby {
			t.Errorf("ended while it waited: %v, %+v", err, waits.Status())
		}
	})
}
