package metalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/metalog/metalogtest"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = time.Minute

// run starts a reader that ends with the test, which fails if Run does.
func run(t *testing.T, q *metalogtest.Quorum, cfg metalog.Config) *metalog.Reader {
	t.Helper()
	r, result := runUntil(t, q, cfg)
	t.Cleanup(func() {
		if err := result(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func quorum(t *testing.T, addrs []string) *metalog.Quorum {
	t.Helper()
	q, err := metalog.NewQuorum(metalog.QuorumConfig{Controllers: addrs,
		Wire: &wire.Config{DialTimeout: time.Second, RequestTimeout: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// runUntil is run for a reader that may fail: result stops it and waits.
func runUntil(t *testing.T, q *metalogtest.Quorum, cfg metalog.Config) (_ *metalog.Reader, result func() error) {
	t.Helper()
	cfg.Quorum = quorum(t, q.Addrs()[:1]) // the others are told by the first
	r := metalog.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(cancel)
	return r, func() error { cancel(); return <-done }
}

func waitFor(t *testing.T, r *metalog.Reader, what string, ok func(metalog.Image) bool) metalog.Image {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	image, err := r.Wait(ctx, ok)
	if err != nil {
		t.Fatalf("%s: %v (image at %d)", what, err, image.Offset)
	}
	return image
}

func hasTopic(name string) func(metalog.Image) bool {
	return func(i metalog.Image) bool { _, ok := i.TopicNamed(name); return ok }
}

func newTopic(n byte) metalog.NewTopic {
	return metalog.NewTopic{Name: fmt.Sprint("t", n), ID: topicID(n)}
}

func TestReaderFollows(t *testing.T) {
	for _, version := range []int16{17, 18} {
		t.Run(fmt.Sprint("Fetch v", version), func(t *testing.T) {
			q := metalogtest.Start(t, 1)
			q.Offer(1, version)
			q.Append(base()...)
			r := run(t, q, metalog.Config{})
			image := waitFor(t, r, "first image", hasTopic("t"))
			if image.Offset != q.End() || image.Epoch != 1 || time.Since(image.Appended) > time.Minute {
				t.Errorf("at %d in epoch %d, appended %v", image.Offset, image.Epoch, image.Appended)
			}
			q.Append(newTopic(2), metalog.ChangePartition{ID: part(0), Leader: ptr(int32(2))})
			image, d, err := r.Next(t.Context(), image.Version)
			if err != nil {
				t.Fatal(err)
			}
			want := metalog.Delta{Topics: map[cluster.TopicID]struct{}{topicID(2): {}}, Partitions: map[metalog.PartitionID]struct{}{part(0): {}}}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Error(diff)
			}
			if p, _ := image.Partition(part(0)); p.Leader != 2 || p.LeaderEpoch != 4 {
				t.Errorf("partition %+v", p)
			}
			fastest := patience
			for n := byte(3); n < 6; n++ { // on a busy machine one may take long
				name, fetches := fmt.Sprint("t", n), q.Fetches()
				q.AppendUncommitted(newTopic(n))
				waitFetches(t, q, fetches+1)
				if hasTopic(name)(r.Image()) {
					t.Error("shows what is not committed")
				}
				began := time.Now()
				q.Commit()
				waitFor(t, r, "after the commit", hasTopic(name))
				fastest = min(fastest, time.Since(began))
			}
			if fastest > 400*time.Millisecond {
				t.Errorf("at best %v until committed records were there: waited for the fetch to end", fastest)
			}
		})
	}
}

func waitFetches(t *testing.T, q *metalogtest.Quorum, n int) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for q.Fetches() < n {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d fetches, want %d", q.Fetches(), n)
		}
	}
}

func TestReaderDropsWhatIsLostAtAnElection(t *testing.T) {
	q := metalogtest.Start(t, 3)
	q.Append(base()...)
	r := run(t, q, metalog.Config{})
	waitFor(t, r, "first image", hasTopic("t"))
	fetches := q.Fetches()
	q.AppendUncommitted(newTopic(2))
	waitFetches(t, q, fetches+2) // it has been fetched
	q.Elect(1)
	q.Append(newTopic(3))
	image := waitFor(t, r, "after the election", hasTopic("t3"))
	if hasTopic("t2")(image) || image.Epoch != 2 || image.Offset != q.End() {
		t.Errorf("image at %d in epoch %d has t2: %v", image.Offset, image.Epoch, hasTopic("t2")(image))
	}
}

func TestReaderSurvivesControllers(t *testing.T) {
	q := metalogtest.Start(t, 3)
	q.Append(base()...)
	r := run(t, q, metalog.Config{})
	waitFor(t, r, "first image", hasTopic("t"))
	q.Kill(0)
	q.Elect(2)
	q.Append(newTopic(2))
	waitFor(t, r, "after a kill", hasTopic("t2"))
	q.Freeze(2)
	q.Elect(1)
	q.Append(newTopic(3))
	began := time.Now()
	image := waitFor(t, r, "after a controller was frozen", hasTopic("t3"))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("believed in a silent controller for %v", took)
	}
	if image.Offset != q.End() {
		t.Errorf("image at %d, log ends at %d", image.Offset, q.End())
	}
}

func TestReaderSnapshot(t *testing.T) {
	q := metalogtest.Start(t, 1)
	q.Append(newTopic(9))
	q.Append(metalog.RemoveTopic{ID: topicID(9)})
	q.Snapshot(base()...)
	q.Append(newTopic(2))
	r := run(t, q, metalog.Config{})
	image := waitFor(t, r, "after a snapshot", hasTopic("t2"))
	if !hasTopic("t")(image) || image.Offset != q.End() {
		t.Errorf("image at %d, log ends at %d", image.Offset, q.End())
	}
	if p, ok := image.Partition(part(1)); !ok || p.PartitionEpoch != 10 {
		t.Errorf("partition %+v", p)
	}
	if _, d, err := r.Next(t.Context(), 0); err != nil || !d.All {
		t.Errorf("delta %+v %v", d, err)
	}
	q.Lose(0) // as no quorum may
	q.Snapshot(newTopic(5))
	q.Append(newTopic(6))
	later := waitFor(t, r, "after another log", hasTopic("t6"))
	if hasTopic("t")(later) || !hasTopic("t5")(later) || later.Version <= image.Version {
		t.Errorf("image %d of another log has what the first one had", later.Version)
	}
}

func TestReaderTransactions(t *testing.T) {
	q := metalogtest.Start(t, 1)
	q.Append(base()...)
	r := run(t, q, metalog.Config{})
	version := waitFor(t, r, "first image", hasTopic("t")).Version
	q.Append(newTopic(2), metalog.BeginTransaction{}, newTopic(3))
	image := waitFor(t, r, "before the transaction", hasTopic("t2"))
	q.Append(newTopic(4))
	q.Append(metalog.AbortTransaction{}, newTopic(5), metalog.BeginTransaction{}, newTopic(6))
	waitFor(t, r, "an aborted transaction", hasTopic("t5"))
	q.Append(metalog.EndTransaction{})
	image = waitFor(t, r, "a whole transaction", hasTopic("t6"))
	if hasTopic("t3")(image) || hasTopic("t4")(image) {
		t.Error("shows what was aborted")
	}
	_, d, err := r.Next(t.Context(), version)
	if want := map[cluster.TopicID]struct{}{topicID(2): {}, topicID(5): {}, topicID(6): {}}; !cmp.Equal(want, d.Topics) || err != nil {
		t.Errorf("delta %v %v", d.Topics, err)
	}
}

func TestReaderCredentials(t *testing.T) {
	id := metalog.CredentialID{User: "u", Mechanism: metalog.ScramSHA512}
	for _, keep := range []bool{false, true} {
		q := metalogtest.Start(t, 1)
		q.Append(metalog.SetCredential{ID: id, Credential: secret})
		q.Append(newTopic(1))
		var logged bytes.Buffer
		r, stop := runUntil(t, q, metalog.Config{Credentials: keep, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		got, ok := waitFor(t, r, "first image", hasTopic("t1")).Credential(id)
		if ok != keep || keep && !cmp.Equal(got, secret) {
			t.Errorf("kept: %v", ok)
		}
		q.Append(metalog.RemoveCredential{ID: id}, newTopic(2))
		if _, ok := waitFor(t, r, "removed", hasTopic("t2")).Credential(id); ok {
			t.Error("still there")
		}
		if err := stop(); err != nil || strings.Contains(logged.String(), "store"+"d") {
			t.Error(err, logged.String())
		}
	}
}

// TestReaderForgets: who lags behind what is remembered is told to look at all.
func TestReaderForgets(t *testing.T) {
	q := metalogtest.Start(t, 1)
	q.Append(base()...)
	r := run(t, q, metalog.Config{History: 10})
	version := waitFor(t, r, "first image", hasTopic("t")).Version
	for n := range byte(20) {
		q.Append(newTopic(100 + n))
		waitFor(t, r, "a topic", hasTopic(fmt.Sprint("t", 100+n)))
	}
	if _, d, err := r.Next(t.Context(), version); err != nil || !d.All {
		t.Errorf("old: %+v %v", d, err)
	}
	if _, d, err := r.Next(t.Context(), r.Image().Version-2); err != nil || d.All || len(d.Topics) != 2 {
		t.Errorf("new: %+v %v", d, err)
	}
}

func TestReaderGivesUp(t *testing.T) {
	tests := []struct {
		name string
		set  func(q *metalogtest.Quorum)
		want func(error) bool
	}{
		{"a record of the future", func(q *metalogtest.Quorum) { q.AppendRaw(metalogtest.Batch(q.End(), 1, false, []byte{1, 0, 9, 0})) },
			func(err error) bool { var v *metalog.VersionError; return errors.As(err, &v) }},
		{"controllers of 3.6", func(q *metalogtest.Quorum) { q.Offer(1, 15) },
			func(err error) bool { return errors.Is(err, errors.ErrUnsupported) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := metalogtest.Start(t, 1)
			q.Append(base()...)
			tt.set(q)
			cfg := metalog.Config{Quorum: quorum(t, q.Addrs())}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := metalog.New(cfg).Run(ctx); !tt.want(err) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// TestReaderReadsAgainAfterCorruption: a bit that flipped on the way.
func TestReaderReadsAgainAfterCorruption(t *testing.T) {
	q := metalogtest.Start(t, 1)
	q.Append(base()...)
	bad := metalogtest.Batch(q.End(), 1, false, metalogtest.NoOp())
	bad[len(bad)-1] ^= 1
	r := run(t, q, metalog.Config{})
	waitFor(t, r, "first image", hasTopic("t"))
	q.AppendRaw(bad)
	fetches := q.Fetches()
	waitFetches(t, q, fetches+2)
	q.Lose(q.End() - 1)
	q.Append(newTopic(2))
	waitFor(t, r, "after the bytes came whole", hasTopic("t2"))
}

func TestQuorumErrors(t *testing.T) {
	if _, err := metalog.NewQuorum(metalog.QuorumConfig{Controllers: []string{"host"}}); err == nil {
		t.Error("an address without a port")
	}
	q := metalogtest.Start(t, 2)
	q.Elect(-1)
	if _, err := quorum(t, q.Addrs()).Active(t.Context()); !errors.Is(err, metalog.ErrNoActive) {
		t.Errorf("nobody active: %v", err)
	}
	q.Elect(1)
	stale := quorum(t, q.Addrs())
	active, err := stale.Active(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if active.ID != 1 || active.Epoch != 3 {
		t.Errorf("active %d in epoch %d", active.ID, active.Epoch)
	}
	active.Close()
	broker := func(ctx context.Context) (*wire.Conn, error) {
		return wire.Dial(ctx, wire.Addr{ID: -1, Host: host(q), Port: port(q)}, nil)
	}
	q.Offer(int16(kmsg.DescribeQuorum), -1)
	zk, err := metalog.NewQuorum(metalog.QuorumConfig{Brokers: broker})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zk.Active(t.Context()); !errors.Is(err, metalog.ErrNotKRaft) {
		t.Errorf("without a quorum: %v", err)
	}
}

func host(q *metalogtest.Quorum) string { h, _, _ := strings.Cut(q.Addr(0), ":"); return h }

func port(q *metalogtest.Quorum) (n int32) {
	_, p, _ := strings.Cut(q.Addr(0), ":")
	fmt.Sscan(p, &n)
	return n
}
