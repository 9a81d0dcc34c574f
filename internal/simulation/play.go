package simulation

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
)

// Play carries a schedule out in a bubble of its own, and says which promise was
// broken at which step (*Broken); nil when none was. What is still running at the end,
// when all was told to end, is a broken promise too. each, which may be nil, is given
// what every step has shown.
func Play(t *testing.T, s Schedule, logger *slog.Logger, each func(step int, shown string)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Broken{Step: len(s.Steps), Err: broken("C11.13", "something of the engine is left: %v", r)}
		}
	}()
	if each == nil {
		each = func(int, string) {}
	}
	synctest.Test(t, func(*testing.T) { err = play(s, logger, each) })
	return err
}

// Broken is a promise that was broken.
type Broken struct {
	Step int // index; the number of steps when it shows at the end
	Err  error
}

func (b *Broken) Error() string { return fmt.Sprintf("step %d: %v", b.Step+1, b.Err) }

func (b *Broken) Unwrap() error { return b.Err }

// Rule is the name of what was broken: "I4", "liveness".
func (b *Broken) Rule() string {
	var v *violation
	if errors.As(b.Err, &v) {
		return v.rule
	}
	return "error"
}

func play(s Schedule, logger *slog.Logger, each func(int, string)) error {
	w := newWorld(s.Setup, logger)
	var first error
	for i, step := range s.Steps {
		if s.Setup.off(string(step.Op)) {
			continue
		}
		err := w.act(step)
		if err == nil {
			err = w.oracle.check()
		}
		each(i, w.output.String())
		w.output.Reset()
		if v, ok := err.(*violation); ok && s.Setup.off(v.rule) {
			err = nil
		}
		if err != nil {
			first = &Broken{Step: i, Err: err}
			break
		}
	}
	if err := w.close(); err != nil && first == nil {
		first = &Broken{Step: len(s.Steps), Err: err}
	}
	return first
}
