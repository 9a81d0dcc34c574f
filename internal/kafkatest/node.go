package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

var errNotRunning = errors.New("not running")

// node is one broker, and its own controller where there is no ZooKeeper.
type node struct {
	*core
	id                                       int
	dir                                      string
	clientPort, internalPort, controllerPort int

	mu   sync.Mutex
	runs program       // from the next start on
	proc *process      // nil before the first start; may have ended
	past time.Duration // processor time of processes before proc
}

// program is a release whose jars are there.
type program struct {
	release release
	libs    string // folder with the jars
}

func (n *node) addr() string   { return localAddr(n.clientPort) }
func (n *node) logDir() string { return filepath.Join(n.dir, "data") }
func (n *node) conf() string   { return filepath.Join(n.dir, "server.properties") }

// class returns the command that runs a Java class of the release.
func (c *core) class(log string, jvm []string, class string, args ...string) *exec.Cmd {
	return c.classOf(c.release, c.libs, log, jvm, class, args...)
}

// classOf is class of any release, whose jars are in libs.
func (c *core) classOf(r release, libs, log string, jvm []string, class string, args ...string) *exec.Cmd {
	line := append([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		r.logFlag + filepath.Join(c.dir, r.logFile), "-Dkafkatest.log=" + log}, jvm...)
	line = append(line, sharing(c.java, libs)...)
	line = append(line, "-cp", filepath.Join(libs, "*"), class)
	return exec.Command(c.java, append(line, args...)...)
}

// start starts the broker and returns at once.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.past += n.proc.cpu()
		n.proc = nil
	}
	out, err := os.OpenFile(filepath.Join(n.dir, "out.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() // the process has its own descriptor
	jvm := append([]string{"-Xms128m", "-Xmx384m"}, n.options.JVM...)
	cmd := n.classOf(n.runs.release, n.runs.libs, filepath.Join(n.dir, "server.log"), jvm, "kafka.Kafka", n.conf())
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, out, out
	n.proc, err = startProcess(cmd)
	if err != nil {
		n.proc = nil
	}
	return err
}

func (n *node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

func (n *node) running() bool {
	p := n.current()
	return p != nil && p.running()
}

func (n *node) kill() {
	if p := n.current(); p != nil {
		p.kill()
	}
}

func (n *node) signal(sig os.Signal) error {
	p := n.current()
	if p == nil {
		return fmt.Errorf("kafkatest: node %d: %w", n.id, errNotRunning)
	}
	if err := p.signal(sig); err != nil {
		return fmt.Errorf("kafkatest: node %d: %v: %w", n.id, sig, err)
	}
	return nil
}

// become has the node be one of another release from its next start on.
func (n *node) become(p program) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs = p
}

func (n *node) stop() error {
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := n.current().wait(ctx); ctx.Err() != nil {
		n.kill()
		return fmt.Errorf("kafkatest: node %d did not shut down: %w\n%s", n.id, err, n.logTail())
	}
	return nil
}

// cpu returns the processor time of all processes this node has had.
func (n *node) cpu() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.proc == nil:
		return n.past
	case n.proc.running():
		return n.past + procCPU(n.proc.cmd.Process.Pid)
	}
	return n.past + n.proc.cpu()
}

// logTail returns the end of what the node logged, for error messages.
func (n *node) logTail() string {
	const most = 3000
	var tail string
	for _, name := range []string{"server.log", "out.log"} {
		b, _ := os.ReadFile(filepath.Join(n.dir, name)) // absent if nothing was logged
		tail += string(b[max(0, len(b)-most):])
	}
	return tail
}
