package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childParent starts a bound process of its own, tells its id, and hangs.
func childParent([]string) error {
	p, err := startProcess(exec.Command("sleep", "600"))
	if err != nil {
		return err
	}
	fmt.Println("grandchild", p.cmd.Process.Pid)
	return p.wait(context.Background())
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestChildRuns(t *testing.T) {
	ctx := withTimeout(t, 20*time.Second)
	p := SpawnChild(t, "echo", "a", "b")
	if got := p.WaitLine(ctx, "args"); got != "args a b" {
		t.Errorf("line %q", got)
	}
	if err := p.Wait(ctx); err != nil {
		t.Error(err)
	}
}

func TestChildFails(t *testing.T) {
	ctx := withTimeout(t, 20*time.Second)
	for name, want := range map[string]struct {
		code int
		line string
	}{"fail": {1, "wrong on purpose"}, "unknown": {2, "kafkatest: no child"}} {
		p := SpawnChild(t, name)
		p.WaitLine(ctx, want.line)
		var exit *exec.ExitError
		if err := p.Wait(ctx); !errors.As(err, &exit) || exit.ExitCode() != want.code {
			t.Errorf("%s: %v, want exit code %d", name, err, want.code)
		}
	}
}

func TestChildKill(t *testing.T) {
	ctx := withTimeout(t, 20*time.Second)
	p := SpawnChild(t, "hang")
	if got, want := p.WaitLine(ctx, "pid"), fmt.Sprint("pid ", p.PID()); got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	p.Kill()
	var exit *exec.ExitError
	if err := p.Wait(ctx); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v, want SIGKILL", err)
	}
}

// TestChildStopCont sees in /proc that a stopped child stands still.
func TestChildStopCont(t *testing.T) {
	ctx := withTimeout(t, 20*time.Second)
	p := SpawnChild(t, "count")
	p.WaitLine(ctx, "tick 1")
	p.Stop()
	waitState(t, p.PID(), "T")
	p.Cont()
	waitState(t, p.PID(), "SR")
	p.WaitLine(ctx, fmt.Sprintf("tick %d", len(p.Lines())+1))
}

func waitState(t *testing.T, pid int, states string) {
	t.Helper()
	Eventually(t, 5*time.Second, func(context.Context) error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if !strings.Contains(states, after[:1]) {
			return fmt.Errorf("state %s, want one of %s", after[:1], states)
		}
		return nil
	})
}

// TestBoundProcessDiesWithParent: kill -9 of a test process must take the
// brokers with it.
func TestBoundProcessDiesWithParent(t *testing.T) {
	if boundAttr() == nil {
		t.Skip("processes are bound to their parent on Linux only")
	}
	ctx := withTimeout(t, 20*time.Second)
	p := SpawnChild(t, "parent")
	var pid int
	if _, err := fmt.Sscanf(p.WaitLine(ctx, "grandchild"), "grandchild %d", &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("grandchild does not run: %v", err)
	}
	p.Kill()
	Eventually(t, 5*time.Second, func(context.Context) error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") { // gone, or dead and not yet reaped
			return nil
		}
		return fmt.Errorf("process %d still runs", pid)
	})
}
