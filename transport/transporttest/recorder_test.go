package transporttest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// recorder is a test that may fail without failing the one around it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Log(...any)          {}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }

// failures runs the check of a name and tells what it found.
func failures(t *testing.T, name string, open func(t testing.TB) End) []string {
	t.Helper()
	all := checks()
	i := slices.IndexFunc(all, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no check %q", name)
	}
	r := &recorder{TB: t}
	if missing := all[i].needs(open(r)); missing != "" {
		t.Fatalf("%s needs %s", name, missing)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all[i].run(newKit(r, Options{Open: open, Timeout: time.Second}))
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.failures
}
