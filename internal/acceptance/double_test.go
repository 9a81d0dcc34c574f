package acceptance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// TestDouble: two processes run the same mirror at once under load. The logs are
// identical and the loser says that it is fenced and backs off (I4, C11.3).
func TestDouble(t *testing.T) {
	for name, age := range map[string]time.Duration{"fresh": 0, "month-old": 30 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, dst := source(t), destination(t)
			topic := "double-" + name
			src.CreateTopic(t, topic, 4, 1, map[string]string{"retention.ms": "-1"})
			stop := writer(t, src, topic, 4, age)
			one := spawn(t, topic, src, dst, topic)
			two := spawn(t, topic, src, dst, topic)
			wait(t, sized(12*time.Second, 60*time.Second))
			stop()
			caughtUp(t, time.Minute, src, dst, topic)
			out := append(one.Lines(), two.Lines()...)
			fenced := 0
			for _, l := range out {
				if strings.Contains(l, " fenced ") {
					fenced++
				}
				if strings.Contains(l, " displaced ") || strings.Contains(l, " foreign ") {
					t.Errorf("displaced: %s", l)
				}
			}
			t.Logf("%d times fenced; destination at %v", fenced, ends(t, dst, topic))
			if fenced == 0 {
				t.Errorf("nobody reported to be fenced:\n%s", strings.Join(out, "\n"))
			}
			if fenced > 200 {
				t.Errorf("%d reports of fencing: nobody backs off", fenced)
			}
			equal(t, src, dst, topic, 4)
		})
	}
}

// TestZombie: a worker that was frozen before the stop wakes up after it. Nothing
// of it is accepted (I6). The records the application wrote meanwhile are brought
// back to the source by a mirror the other way, and then the first mirror begins
// a second stretch.
func TestZombie(t *testing.T) {
	for name, age := range map[string]time.Duration{"fresh": 0, "month-old": 30 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zombie(t, "zombie-"+name, age)
		})
	}
}

func zombie(t *testing.T, topic string, age time.Duration) {
	src, dst := source(t), destination(t)
	src.CreateTopic(t, topic, 1, 1, map[string]string{"retention.ms": "-1"})
	put(t, src, topic, 0, 100, age)
	frozen := spawn(t, topic, src, dst, topic)
	caughtUp(t, 30*time.Second, src, dst, topic)
	frozen.Stop()

	options := mirror.Options{Topics: mirror.Topics{Include: []string{topic}}}
	m := run(t, topic, connect(t, src), connect(t, dst), options)
	m.event(30*time.Second, "mirroring", func(e mirror.StateEvent) bool { return e.To == coordinator.StateMirroring })
	if err := m.Stop(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	m.end()
	first := put(t, dst, topic, 0, 5, age)
	wait(t, 1500*time.Millisecond) // the broker looks for what has expired every second
	stood := ends(t, dst, topic)
	put(t, src, topic, 0, 50, age) // what the frozen worker will try to append
	frozen.Cont()
	frozen.WaitLine(timeout(t, time.Minute), "state "+topic+"-0 MIRRORING FAILED")
	if now := ends(t, dst, topic); fmt.Sprint(now) != fmt.Sprint(stood) || first != 101 {
		t.Errorf("the frozen worker appended: ends were %v, are %v; the application began at %d", stood, now, first)
	}
	frozen.Kill()

	// The source went on by itself: the logs part at 100, so it is refused.
	refused := run(t, topic, connect(t, src), connect(t, dst), options)
	e := refused.event(30*time.Second, "diverged", func(e mirror.StateEvent) bool { return kind(e.Err) == "diverged" })
	if e.Offset < 100 {
		t.Errorf("refused at offset %d: %v", e.Offset, e.Err)
	}
	refused.end()
}

// TestThereAndBack: failover, records of an application, failback of the delta,
// and the first mirror again: the second stretch appends, both logs are equal.
func TestThereAndBack(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic = "back"
	options := mirror.Options{Topics: mirror.Topics{Include: []string{topic}}}
	src.CreateTopic(t, topic, 1, 1, nil)
	put(t, src, topic, 0, 100)
	there := run(t, "there", connect(t, src), connect(t, dst), options)
	caughtUp(t, 30*time.Second, src, dst, topic)
	if err := there.Stop(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	put(t, dst, topic, 0, 5)

	back := run(t, "back", connect(t, dst), connect(t, src), options)
	caughtUp(t, 30*time.Second, dst, src, topic)
	if err := back.Stop(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	put(t, src, topic, 0, 7)

	if err := there.Start(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if err := there.WaitMirrored(timeout(t, 30*time.Second), cluster.Partition{Topic: topic}, 113); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, 30*time.Second, src, dst, topic)
	equal(t, src, dst, topic, 1)
	if now := ends(t, dst, topic); now[0] != 114 { // 100, a fence, 5, a fence, 7
		t.Errorf("destination ends at %d, want 114", now[0])
	}
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
