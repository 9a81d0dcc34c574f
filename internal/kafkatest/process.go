package kafkatest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a started command whose life ends no later than ours.
type process struct {
	cmd *exec.Cmd
	// done is closed once the process has been waited for; err and
	// cmd.ProcessState may be read only after that.
	done chan struct{}
	err  error
}

// startProcess starts cmd. The kernel's parent-death signal is tied to the
// starting THREAD, and Go ends threads at will; so each process is started and
// waited for by one goroutine that keeps its thread for the whole time.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = boundAttr()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	return p, <-started
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL) // only fails when it has ended already
	<-p.done
}

// wait returns the process's own result, or ctx's error while it still runs.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cpu returns the processor time used by an ended process.
func (p *process) cpu() time.Duration {
	s := p.cmd.ProcessState
	if s == nil {
		return 0
	}
	return s.UserTime() + s.SystemTime()
}

// output runs cmd to its end and returns what it wrote to stdout and stderr.
// When ctx ends first the command is killed.
func output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	err = p.wait(ctx)
	p.kill()
	return out.Bytes(), err
}
