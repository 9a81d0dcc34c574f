package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/zoo/live"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/kafka"
)

// keeper mirrors a zoo in a process of its own, by small steps, with its state in the
// destination: name, source, destination, topics, way of filling.
func keeper(args []string) error {
	source, err := kafka.New(kafka.Config{Bootstrap: strings.Split(args[1], ",")})
	if err != nil {
		return err
	}
	to := kafka.Config{Bootstrap: strings.Split(args[2], ",")}
	filling(args[4])(&to)
	destination, err := kafka.New(to)
	if err != nil {
		return err
	}
	store, err := statekafka.New(statekafka.Config{Bootstrap: to.Bootstrap})
	if err != nil {
		return err
	}
	m, err := mirror.New(args[0], source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: []string{args[3]}}, Store: store, RetryMax: 3 * time.Second,
		Fetch: fetcher.Options{PartitionBytes: 4 << 10},
		Events: mirror.Events{State: func(e mirror.StateEvent) {
			fmt.Printf("state %v %s %s %s %v\n", e.Partition, e.From, e.To, kind(e.Err), e.Err)
		}},
	})
	if err != nil {
		return err
	}
	return m.Run(context.Background()) // until it is killed
}

func keep(t *testing.T, name string, src, dst *kafkatest.Cluster, topics, way string) *kafkatest.Process {
	t.Helper()
	p := kafkatest.SpawnChild(t, "keeper", name, strings.Join(src.Bootstrap(), ","), strings.Join(dst.Bootstrap(), ","), topics, way)
	t.Cleanup(func() {
		for _, l := range p.Lines() {
			if t.Failed() && strings.Contains(l, " FAILED ") {
				t.Log(l)
			}
		}
	})
	return p
}

// copied is how much there is of the topics, all together; 0 while they are not there.
func copied(ctx context.Context, cl *kgo.Client, topics []live.Topic) (n int64) {
	for _, topic := range topics {
		if at, err := highWatermarks(ctx, cl, topic.Name); err == nil {
			n += sum(at)
		}
	}
	return n
}

// TestKillInZoo: a mirror that is killed again and again while it copies a zoo leaves
// every record at its place, whichever way gaps are filled: markers are not repeatable,
// so each new process looks at what the one before has left (I3, I4, C11.1).
func TestKillInZoo(t *testing.T) {
	src := source(t)
	topics := fill(t, src, "zookill-", 7, sized(60, 300))
	kills := map[string]int{"markers": sized(3, 20), "phantoms": sized(2, 20)}
	for way, n := range kills {
		t.Run(way, func(t *testing.T) {
			dst := zooDestination(t, way)
			cl := dst.Client(t)
			under := 0
			for i := range n {
				p := keep(t, "kill", src, dst, "zookill-.*", way)
				before := copied(t.Context(), cl, topics)
				kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
					if now := copied(ctx, cl, topics); now == before {
						return fmt.Errorf("stands at %d", now)
					}
					return nil
				})
				wait(t, time.Duration(rand.IntN(sized(60, 200)))*time.Millisecond)
				p.Kill()
				now := copied(t.Context(), cl, topics)
				if t.Logf("kill %d: %d offsets", i+1, now); now < copied(t.Context(), src.Client(t), topics)-100 {
					under++
				}
				if i == n/2 { // what was copied by then has to be copied as well, from where it is
					put(t, src, topics[0].Name, 0, 50)
				}
			}
			if under == 0 {
				t.Error("every kill came after the copy was done")
			}
			keep(t, "kill", src, dst, "zookill-.*", way)
			for _, topic := range topics {
				stableUp(t, sized(time.Minute, 5*time.Minute), src, dst, topic)
			}
			same(t, src, dst, topics)
		})
	}
}

// TestDoubleInZoo: two processes mirror the same zoo at once. Both copies are equal, one
// of the two is fenced (I4, C11.3).
func TestDoubleInZoo(t *testing.T) {
	src := source(t)
	topics := fill(t, src, "zoodouble-", 11, sized(60, 300))
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			dst := zooDestination(t, way)
			one := keep(t, "double", src, dst, "zoodouble-.*", way)
			two := keep(t, "double", src, dst, "zoodouble-.*", way)
			said := func(word string) (lines []string) {
				for _, l := range append(one.Lines(), two.Lines()...) {
					if strings.Contains(l, word) {
						lines = append(lines, l)
					}
				}
				return lines
			}
			for range sized(3, 20) {
				wait(t, time.Second)
				put(t, src, topics[0].Name, 0, 20)
			}
			kafkatest.Eventually(t, time.Minute, func(context.Context) error { // both have to be at work
				put(t, src, topics[0].Name, 0, 20)
				if len(said(" fenced ")) == 0 {
					return fmt.Errorf("nobody was fenced:\n%s", strings.Join(said(""), "\n"))
				}
				return nil
			})
			for _, topic := range topics {
				stableUp(t, sized(time.Minute, 5*time.Minute), src, dst, topic)
			}
			same(t, src, dst, topics)
			t.Logf("%d times fenced", len(said(" fenced ")))
			for _, l := range append(said(" displaced "), said(" foreign ")...) {
				t.Errorf("displaced: %s", l)
			}
		})
	}
}
