package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// hopefuls are producers that live on at a mirror topic: Kafka's own and franz-go, both
// idempotent, and librdkafka, which a process of its own tries anew each time.
type hopefuls struct {
	t          *testing.T
	c          *kafkatest.Cluster
	topic      string
	java       *kafkatest.Process
	lines      int // of it, looked at
	resting    atomic.Bool
	underway   sync.Mutex // while franz-go waits for an answer
	mu         sync.Mutex
	taken      map[string]map[int32][]told // by client and partition
	refused    map[string][]string         // by client: what it was told
	background *background
}

func hope(t *testing.T, c *kafkatest.Cluster, topic string, partitions int32) *hopefuls {
	t.Helper()
	h := &hopefuls{t: t, c: c, topic: topic, background: newBackground(t), taken: map[string]map[int32][]told{}, refused: map[string][]string{}}
	h.java = c.JavaProgram(t.Context(), t, "VerifiableProducer", map[string]string{"retries": "2147483647", "enable.idempotence": "true", "delivery.timeout.ms": "60000"},
		"--topic", topic, "--throughput", "20", "--value-prefix", "9")
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Minute))
	h.background.every(50*time.Millisecond, func(ctx context.Context, n int) {
		h.underway.Lock()
		defer h.underway.Unlock()
		if h.resting.Load() {
			return
		}
		r := &kgo.Record{Topic: topic, Partition: int32(n) % partitions, Value: fmt.Append(nil, "of franz-go ", n)}
		err := cl.ProduceSync(ctx, r).FirstErr()
		if !errors.Is(err, context.Canceled) {
			h.answered("franz-go", r.Partition, told{r.Offset, string(r.Value)}, err)
		}
	})
	return h
}

func (h *hopefuls) answered(who string, partition int32, what told, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.refused[who] = append(h.refused[who], err.Error())
		return
	}
	if h.taken[who] == nil {
		h.taken[who] = map[int32][]told{}
	}
	h.taken[who][partition] = append(h.taken[who][partition], what)
}

// hear takes what Kafka's own producer has printed since the last time.
func (h *hopefuls) hear() {
	all := h.java.Lines()
	for _, line := range all[h.lines:] {
		var r struct {
			Name, Value, Exception, Message string
			Partition                       int32
			Offset                          int64
		}
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		switch r.Name {
		case "producer_send_success":
			h.answered("java", r.Partition, told{r.Offset, r.Value}, nil)
		case "producer_send_error":
			h.answered("java", r.Partition, told{}, fmt.Errorf("%s: %s", r.Exception, r.Message))
		}
	}
	h.lines = len(all)
}

// forget begins to count refusals anew.
func (h *hopefuls) forget() {
	h.hear()
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.refused)
}

// count of what was taken of a client.
func (h *hopefuls) count(who string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.taken[who] {
		n += len(of)
	}
	return n
}

// areRefused: each is told why, and nothing more is taken.
func (h *hopefuls) areRefused() {
	h.t.Helper()
	h.forget()
	h.told(1) // answers to what was sent before may still have been on their way
	h.forget()
	had := map[string]int{"java": h.count("java"), "franz-go": h.count("franz-go")}
	h.told(5)
	text := fmt.Sprintf("topic %s is a read-only mirror of another cluster until failover", h.topic)
	want := map[string]string{"java": "PolicyViolationException: " + text, "franz-go": "POLICY_VIOLATION"}
	h.mu.Lock()
	for who, text := range want {
		if at := slices.IndexFunc(h.refused[who], func(told string) bool { return !strings.Contains(told, text) }); at >= 0 {
			h.t.Errorf("%s was refused with %q", who, h.refused[who][at])
		}
	}
	h.mu.Unlock()
	for who, n := range had {
		if now := h.count(who); now != n {
			h.t.Errorf("%d records of %s were taken", now-n, who)
		}
	}
	if out, err := h.kcat(); err == nil || !strings.Contains(strings.ToLower(out), "policy violation") {
		h.t.Errorf("librdkafka writes: %v, %s", err, out)
	}
}

// told waits until each was refused so often.
func (h *hopefuls) told(n int) {
	h.t.Helper()
	kafkatest.Eventually(h.t, 30*time.Second, func(context.Context) error {
		h.hear()
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, who := range []string{"java", "franz-go"} {
			if len(h.refused[who]) < n {
				return fmt.Errorf("%s was refused %d times; %d records were taken", who, len(h.refused[who]), len(h.taken[who]))
			}
		}
		return nil
	})
}

// areTaken: each that was refused a moment ago is heard, without being started anew.
func (h *hopefuls) areTaken() {
	h.t.Helper()
	began := time.Now()
	had := map[string]int{"java": h.count("java"), "franz-go": h.count("franz-go")}
	first := map[string]time.Duration{}
	kafkatest.Eventually(h.t, time.Minute, func(context.Context) (err error) {
		h.hear()
		for who, n := range had {
			now := h.count(who)
			if _, known := first[who]; !known && now > n {
				first[who] = time.Since(began).Round(time.Millisecond)
			}
			if now < n+10 {
				err = errors.Join(err, fmt.Errorf("of %s %d records were taken; it was told %q", who, now-n, tail(h.refused[who], 3)))
			}
		}
		return err
	})
	h.t.Logf("writable: the first records were taken after %v", first)
	if out, err := h.kcat(); err != nil {
		h.t.Errorf("librdkafka writes: %v, %s", err, out)
	}
}

// kcat writes a record with librdkafka.
func (h *hopefuls) kcat() (string, error) {
	cmd := exec.CommandContext(timeout(h.t, time.Minute), "kcat", "-b", strings.Join(h.c.Bootstrap(), ","), "-P", "-t", h.topic,
		"-X", "enable.idempotence=true", "-X", "message.timeout.ms=20000")
	cmd.Stdin = strings.NewReader("of librdkafka\n")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// rest has them write nothing, or again. Nothing is on its way then.
func (h *hopefuls) rest(on bool) {
	h.t.Helper()
	h.resting.Store(on)
	if !on {
		h.java.Cont()
		return
	}
	h.java.Stop()
	h.underway.Lock()
	h.underway.Unlock()
}

// kept: what they were told was written is there.
func (h *hopefuls) kept(truth map[int32][]told) {
	h.t.Helper()
	h.hear()
	h.mu.Lock()
	defer h.mu.Unlock()
	for who, parts := range h.taken {
		n := 0
		for p, all := range parts {
			for _, one := range all {
				if n++; !slices.Contains(truth[p], one) {
					h.t.Errorf("%s was told that %q stands in partition %d at offset %d", who, one.Value, p, one.Offset)
				}
			}
		}
		h.t.Logf("%s: %d records were taken", who, n)
	}
}
