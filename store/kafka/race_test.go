package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/google/go-cmp/cmp"
)

const (
	raceMirror     = "race"
	racePartitions = 3
	raceWins       = 80 // of each racer
)

// record is one that can be stored.
func record(topic string, partition, epoch int32) coordinator.Record {
	return coordinator.Record{
		Partition: cluster.Partition{Topic: topic, Partition: partition}, State: coordinator.StateMirroring,
		Previous: coordinator.StateLogAlignment, Desired: coordinator.WantMirroring, OwnerEpoch: 1, StateEpoch: epoch, Cut: -1,
		TopicID: cluster.TopicID{1, 2, 3}, Sources: []string{"source-cluster-id"}, Stretch: 1, Aligned: true, Appended: true,
		Epochs: []coordinator.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 4, Start: 100}},
	}
}

// racer adds one to the state epochs of some records until it has won often enough, and
// prints each win.
func racer(args []string) error {
	name, topic, bootstrap := args[0], args[1], strings.Split(args[2], ",")
	s, err := New(Config{Bootstrap: bootstrap, Topic: topic})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	lost := 0
	for wins := 0; wins < raceWins; {
		records, err := s.Load(ctx, raceMirror)
		if err != nil {
			return err
		}
		var next [racePartitions]coordinator.Record
		for i := range next {
			next[i] = record("t", int32(i), 1)
		}
		for _, r := range records {
			r.StateEpoch++
			next[r.Partition.Partition] = r
		}
		mine := next[rand.IntN(racePartitions)]
		mine.Reason = name
		switch err := s.Save(ctx, raceMirror, []coordinator.Record{mine})[0]; {
		case err == nil:
			wins++
			fmt.Println("won", mine.Partition.Partition, mine.StateEpoch)
		case errors.Is(err, coordinator.ErrConflict):
			lost++
		default:
			return err
		}
	}
	fmt.Println("lost", lost)
	return nil
}

// compacting are settings of a topic that is compacted all the time.
var compacting = map[string]string{
	"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0001",
	"delete.retention.ms": "0", "min.compaction.lag.ms": "0", "message.timestamp.type": "LogAppendTime",
}

// TestRealRace: several processes write the same records while compaction runs. No
// change is acknowledged twice, none that was acknowledged is lost, and who comes new
// never sees less than who was there before.
func TestRealRace(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		topic := unique()
		k.CreateTopic(t, topic, 2, 1, compacting)
		var racers []*kafkatest.Process
		for i := range 3 {
			racers = append(racers, kafkatest.SpawnChild(t, "racer", fmt.Sprint("racer-", i), topic, strings.Join(k.Bootstrap(), ",")))
		}
		victim := kafkatest.SpawnChild(t, "racer", "victim", topic, strings.Join(k.Bootstrap(), ","))
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		victim.WaitLine(ctx, "won")
		victim.Kill()

		long := openAt(t, k.Bootstrap(), topic)
		ended := make(chan error, 1)
		go func() {
			var errs []error
			for _, r := range racers {
				errs = append(errs, r.Wait(ctx))
			}
			ended <- errors.Join(errs...)
		}()
		looks := 0
		for running := true; running; looks++ {
			select {
			case err := <-ended:
				if running = false; err != nil {
					t.Fatal(err)
				}
			default:
			}
			before := epochs(t, long)
			fresh := openAt(t, k.Bootstrap(), topic)
			neverLess(t, before, epochs(t, fresh))
			fresh.Close()
		}
		for _, r := range racers {
			r.WaitLine(ctx, "lost")
		}
		conflicts := checkWins(t, append(racers, victim), epochs(t, long))
		left, ends := compacted(ctx, t, k, topic, long)
		t.Logf("%d looks, %d conflicts, %d of %d records left in the topic", looks, conflicts, left, ends)
		if diff := cmp.Diff(epochs(t, long), epochs(t, openAt(t, k.Bootstrap(), topic))); diff != "" {
			t.Errorf("what a new reader sees after compaction (-old reader's +new):\n%s", diff)
		}
		if conflicts == 0 {
			t.Error("nobody raced")
		}
	})
}

// compacted waits until compaction has removed most of what was written. A segment is
// closed by the next write only.
func compacted(ctx context.Context, t *testing.T, k *kafkatest.Cluster, topic string, s *Store) (left, ends int) {
	t.Helper()
	kafkatest.Eventually(t, 30*time.Second, func(context.Context) error {
		for p, epoch := range epochs(t, s) {
			mustSave(t, s, record("t", p, epoch+1))
		}
		left, ends = len(k.KcatConsume(ctx, t, kafkatest.ConsumeSpec{Topic: topic, Partition: kafkatest.AllPartitions})), 0
		for _, end := range k.Ends(ctx, t, topic) {
			ends += int(end)
		}
		if left > ends/2 {
			return fmt.Errorf("%d of %d records are left", left, ends)
		}
		return nil
	})
	return left, ends
}

// epochs are the state epochs that a store sees.
func epochs(t testing.TB, s *Store) map[int32]int32 {
	t.Helper()
	records, err := s.Load(t.Context(), raceMirror)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int32]int32{}
	for _, r := range records {
		out[r.Partition.Partition] = r.StateEpoch
	}
	return out
}

func neverLess(t *testing.T, before, after map[int32]int32) {
	t.Helper()
	for p, e := range before {
		if after[p] < e {
			t.Fatalf("partition %d: a new reader sees epoch %d, another had seen %d", p, after[p], e)
		}
	}
}

// checkWins compares what was acknowledged with what is stored. Only the process that was
// killed may have written something it did not tell.
func checkWins(t *testing.T, racers []*kafkatest.Process, stored map[int32]int32) (conflicts int) {
	t.Helper()
	won := map[[2]int]bool{}
	for _, r := range racers {
		for _, line := range r.Lines() {
			f := strings.Fields(line)
			switch {
			case len(f) == 3 && f[0] == "won":
				p, _ := strconv.Atoi(f[1])
				e, _ := strconv.Atoi(f[2])
				if won[[2]int{p, e}] {
					t.Errorf("epoch %d of partition %d was acknowledged twice", e, p)
				}
				won[[2]int{p, e}] = true
				if int32(e) > stored[int32(p)] {
					t.Errorf("epoch %d of partition %d was acknowledged and is lost", e, p)
				}
			case len(f) == 2 && f[0] == "lost":
				n, _ := strconv.Atoi(f[1])
				conflicts += n
			}
		}
	}
	total := 0
	for _, e := range stored {
		total += int(e)
	}
	if missing := total - len(won); missing < 0 || missing > 1 {
		t.Errorf("%d changes are stored, %d were acknowledged", total, len(won))
	}
	return conflicts
}
