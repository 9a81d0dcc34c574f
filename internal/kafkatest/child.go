package kafkatest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// childVar names the function to run in a child; its arguments are the
// command line.
const childVar = "KAFKATEST_CHILD"

var children = map[string]func(args []string) error{}

// Child registers what a child process of that name does. Call it in TestMain
// before [Main]. The function gets the arguments of [SpawnChild]; the process
// exits with 0 when it returns nil and otherwise with 1 and the error on stderr.
func Child(name string, run func(args []string) error) { children[name] = run }

func runChild() (ran bool, code int) {
	name, ok := os.LookupEnv(childVar)
	if !ok {
		return false, 0
	}
	run := children[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "kafkatest: no child %q\n", name)
		return true, 2
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return true, 1
	}
	return true, 0
}

// Process is a child process of a test: a function of [Child], or a program.
// Safe for concurrent use.
type Process struct {
	t    testing.TB
	proc *process

	mu      sync.Mutex
	lines   []string
	ended   bool          // no more lines come
	changed chan struct{} // closed and replaced with every line
}

// SpawnChild starts this test binary again to run the function registered
// under name. The process is killed when the test ends.
func SpawnChild(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childVar+"="+name)
	return spawn(t, cmd)
}

// Spawn starts a program. The process is killed when the test ends.
func Spawn(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return spawn(t, exec.Command(program, args...))
}

// spawn starts a process that is killed when the test ends.
func spawn(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	p := &Process{t: t, changed: make(chan struct{})}
	p.proc, err = startProcess(cmd)
	w.Close() // the child has its own
	if err != nil {
		r.Close()
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.read(r) })
	t.Cleanup(func() {
		p.proc.kill()
		r.Close() // a grandchild might hold the other end
		reading.Wait()
	})
	return p
}

func (p *Process) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		p.mu.Lock()
		if line != "" {
			p.lines = append(p.lines, strings.TrimSuffix(line, "\n"))
		}
		p.ended = err != nil
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Lines returns what the process has written to stdout and stderr so far.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// WaitLine waits for the first line with the given prefix, also among those
// already written, and returns it. The test fails when the output or ctx ends
// without one.
func (p *Process) WaitLine(ctx context.Context, prefix string) string {
	p.t.Helper()
	for from := 0; ; {
		p.mu.Lock()
		lines, ended, changed := p.lines[from:], p.ended, p.changed
		p.mu.Unlock()
		for _, l := range lines {
			if strings.HasPrefix(l, prefix) {
				return l
			}
		}
		from += len(lines)
		if ended {
			p.t.Fatalf("child ended without a line %q, its output:\n%s", prefix, strings.Join(p.Lines(), "\n"))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			p.t.Fatalf("no line %q from the child: %v, its output:\n%s", prefix, context.Cause(ctx), strings.Join(p.Lines(), "\n"))
		}
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.proc.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.proc.signal(sig); err != nil {
		p.t.Errorf("signalling the child: %v", err)
	}
}

// Stop freezes the process (SIGSTOP).
func (p *Process) Stop() { p.t.Helper(); p.Signal(syscall.SIGSTOP) }

// Cont lets a frozen process go on (SIGCONT).
func (p *Process) Cont() { p.t.Helper(); p.Signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL and returns when it is gone.
func (p *Process) Kill() { p.proc.kill() }

// Wait waits for the process to end by itself: nil for exit code 0, an
// *exec.ExitError otherwise, ctx's cause when that ends first.
func (p *Process) Wait(ctx context.Context) error { return p.proc.wait(ctx) }

// CPUSeconds returns the processor time used so far.
func (p *Process) CPUSeconds() float64 {
	if p.proc.running() {
		return procCPU(p.PID()).Seconds()
	}
	return p.proc.cpu().Seconds()
}
