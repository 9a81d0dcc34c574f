package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/broker"
)

// childLine is the environment in which a test is a process of its own that runs a command
// line and can be killed.
const childLine = "KAFKA_MIRRORS_CHILD"

// process is such a process.
type process struct {
	cmd  *exec.Cmd
	out  output
	done chan error
}

func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^TestRealLeave$"), done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), childLine+"="+strings.Join(args, "\n"))
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.done <- <-p.done
}

// led are how many partitions of a topic real brokers lead, and of how many.
func led(ctx context.Context, cl *kgo.Client, topic string) (real, all int, err error) {
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, err
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.Leader >= 0 && p.Leader < 100 {
			real++
		}
	}
	return real, len(resp.Topics[0].Partitions), nil
}

// leaveVersions are tried in the long form; what is below the command is tried each time.
func leaveVersions() []string {
	if os.Getenv("MIRROR_LONG") == "" {
		return nil
	}
	return []string{"4.4.0", "3.9.1"}
}

// TestRealLeave: a mirror that was killed is taken out of its cluster by another process,
// which is killed as well in the middle of it, and by a third one.
func TestRealLeave(t *testing.T) {
	if line := os.Getenv(childLine); line != "" {
		os.Exit(execute(context.Background(), strings.Split(line, "\n"), streams{out: os.Stdout, err: os.Stderr, width: func() int { return 0 }}))
	}
	for _, version := range leaveVersions() {
		t.Run(version, func(t *testing.T) {
			from := kafkatest.Start(t, kafkatest.Options{})
			to := kafkatest.Start(t, kafkatest.Options{Version: version, Nodes: 3, Config: map[string]string{"default.replication.factor": "3"}})
			a, b := from.Bootstrap()[0], strings.Join(to.Bootstrap(), ",")
			const parts = 60
			from.CreateTopic(t, "orders", parts, 1, nil)
			for p := range int32(parts) {
				produce(t, a, "orders", p, 5, "first")
			}
			line := func(command string, more ...string) []string {
				return append([]string{command, "--name", "a-to-b", "--destination", b, "--join", "100-102", "--join-bind", "127.0.0.1",
					"--join-listener", fmt.Sprint("INTERNAL=PLAINTEXT://127.0.0.1:", freePort(t)), "--join-listener", fmt.Sprint("CLIENT=PLAINTEXT://127.0.0.1:", freePort(t))}, more...)
			}
			ran := spawn(t, line("run", "--source", a, "--topics", "orders", "--state", "kafka")...)
			for p := range int32(parts) {
				consume(t, to.Bootstrap()[0], "orders", p, 5)
			}
			ran.kill()
			says(t, exitOK, line("leave", "--state", "kafka", "--dry-run"), "broker 100 (127.0.0.1:", "is registered", "60 partitions name it", "to be made an ordinary topic: orders")

			broken := spawn(t, line("leave", "--state", "kafka")...)
			cl := client(t, to.Bootstrap()[0])
			kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
				real, all, err := led(ctx, cl, "orders")
				if err == nil && real == 0 {
					err = fmt.Errorf("real brokers lead %d of %d", real, all)
				}
				return err
			})
			broken.kill()
			real, all, err := led(t.Context(), cl, "orders")
			t.Logf("killed when real brokers led %d of %d, %v; it said %q", real, all, err, broken.out.String())
			began := time.Now()
			says(t, exitOK, line("leave", "--state", "kafka"), "is an ordinary topic: orders", "broker 100 is out of the cluster")
			t.Logf("left after %v", time.Since(began))
			outOf(t, to, "orders", parts)
			equalTopics(t, a, to.Bootstrap()[0])
			for p := range int32(parts) {
				produce(t, to.Bootstrap()[0], "orders", p, 1, "open")
			}
			stopped(t, to.Bootstrap()[0], parts)
			says(t, exitOK, line("leave", "--state", "kafka"), "nothing of the mirror is left")

			leaveWithoutState(t, from, to, line)
			leaveOfThree(t, from, to, line)
		})
	}
}

// stopped: every position is stored, and no identity.
func stopped(t *testing.T, bootstrap string, parts int) {
	t.Helper()
	store := stateAt(t, bootstrap, "")
	records, err := store.Load(t.Context(), "a-to-b")
	if err != nil || len(records) != parts {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, r := range records {
		if r.State != coordinator.StateStopped || !r.HasPosition || r.Position.Offset != 5 {
			t.Errorf("%v is %s, stopped at %+v", r.Partition, r.State, r.Position)
		}
	}
	shared := broker.NewShared(store, "a-to-b")
	identities, err := shared.Identities().All(t.Context())
	topics, errTopics := shared.Overrides().Topics(t.Context())
	if len(identities)+len(topics) > 0 || err != nil || errTopics != nil {
		t.Errorf("left are identities %+v, topics %v, %v, %v", identities, topics, err, errTopics)
	}
}

// leaveWithoutState: only the metadata log tells what is led.
func leaveWithoutState(t *testing.T, from, to *kafkatest.Cluster, line func(string, ...string) []string) {
	t.Helper()
	from.CreateTopic(t, "more", 2, 1, nil)
	produce(t, from.Bootstrap()[0], "more", 0, 10, "first")
	ran := spawn(t, line("run", "--source", from.Bootstrap()[0], "--topics", "more", "--join-state", t.TempDir())...)
	consume(t, to.Bootstrap()[0], "more", 0, 10)
	ran.kill()
	says(t, exitFailed, line("leave"), "nothing says which brokers are ours", "[100]")
	says(t, exitOK, line("leave", "--id", "100"), "is an ordinary topic: more", "broker 100 is out of the cluster")
	outOf(t, to, "more", 2)
	produce(t, to.Bootstrap()[0], "more", 0, 1, "open")
	consume(t, to.Bootstrap()[0], "more", 0, 11)
}

// leaveOfThree: the one that mirrors is killed, and two that stand by with it.
func leaveOfThree(t *testing.T, from, to *kafkatest.Cluster, line func(string, ...string) []string) {
	t.Helper()
	from.CreateTopic(t, "third", 2, 1, nil)
	produce(t, from.Bootstrap()[0], "third", 0, 10, "first")
	var ran []*process
	cl := client(t, to.Bootstrap()[0])
	for n := range 3 {
		ran = append(ran, spawn(t, line("run", "--source", from.Bootstrap()[0], "--topics", "third", "--state", "kafka")...))
		consume(t, to.Bootstrap()[0], "third", 0, 10)
		kafkatest.Eventually(t, time.Minute, func(context.Context) error {
			if all := inSync(t, cl, "third"); all != 2*(n+1) {
				return fmt.Errorf("%d in sync; the last process said %q", all, ran[n].out.String())
			}
			return nil
		})
	}
	for _, p := range ran {
		p.kill()
	}
	began := time.Now()
	says(t, exitOK, line("leave", "--state", "kafka"), "is an ordinary topic: third",
		"broker 100 is out of the cluster", "broker 101 is out of the cluster", "broker 102 is out of the cluster")
	t.Logf("three of them left after %v", time.Since(began))
	outOf(t, to, "third", 2)
	produce(t, to.Bootstrap()[0], "third", 0, 1, "open")
	consume(t, to.Bootstrap()[0], "third", 0, 11)
}

// says runs a command line and looks for texts in what it prints.
func says(t *testing.T, code int, args []string, texts ...string) {
	t.Helper()
	got, stdout, stderr := try(t, args...)
	for _, text := range texts {
		if got != code || !strings.Contains(stdout+stderr, text) {
			t.Errorf("%s: exit code %d, want %d, and %q in:\n%s%s", args[0], got, code, text, stdout, stderr)
		}
	}
}

// outOf: real brokers lead a topic, all its replicas are theirs and in sync, and no other is
// registered.
func outOf(t *testing.T, c *kafkatest.Cluster, topic string, parts int) {
	t.Helper()
	cl := client(t, c.Bootstrap()[0])
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = &topic
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = append(req.Topics, one)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		if len(resp.Brokers) != 3 || len(resp.Topics[0].Partitions) != parts {
			return fmt.Errorf("%d brokers, %d partitions", len(resp.Brokers), len(resp.Topics[0].Partitions))
		}
		for _, p := range resp.Topics[0].Partitions {
			slices.Sort(p.Replicas)
			slices.Sort(p.ISR)
			if !slices.Equal(p.Replicas, []int32{1, 2, 3}) || !slices.Equal(p.ISR, p.Replicas) || p.Leader < 0 {
				return fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v", topic, p.Partition, p.Leader, p.Replicas, p.ISR)
			}
		}
		return nil
	})
}
