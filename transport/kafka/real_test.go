package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// versions are those that are tried; with -short, in runs that look for races, the newest.
func versions() []string {
	if testing.Short() {
		return []string{"4.4.0"}
	}
	return []string{"4.4.0", "3.9.1"}
}

// onReal runs f against one real broker of each version, shared by all tests, both at once.
func onReal(t *testing.T, f func(t *testing.T, k *kafkatest.Cluster)) {
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f(t, kafkatest.Shared(t, kafkatest.Options{Version: version, Config: map[string]string{
				"producer.id.expiration.check.interval.ms": "1000",
			}}))
		})
	}
}

var serial atomic.Int64

// unique makes a name that no other test of a shared cluster has, nor another run
// of this one.
func unique(name string) string { return fmt.Sprint(name, "-", serial.Add(1)) }

// realTopic makes a topic of its own and the partition to write to.
func realTopic(t *testing.T, k *kafkatest.Cluster, name string, configs map[string]string) cluster.Partition {
	t.Helper()
	name = unique(name)
	k.CreateTopic(t, name, 1, 1, configs)
	return cluster.Partition{Topic: name}
}

func TestRealCompareAndAppend(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "cas", nil)
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, batchesAt(0, 5, 10, now()))
		if !c.lane(p).proven {
			t.Error("unproven after a batch with acks=all")
		}
		late := open(t, k.Bootstrap())
		beginAt(t, late, stretchOf(p))
		if !late.lane(p).proven {
			t.Error("a worker that finds its id at the broker, below the high watermark, starts unproven")
		}
		stamp := now()
		mustAppend(t, c, p, batchesAt(50, 1, 10, stamp))

		// The same batch from another worker: a duplicate, recognised as such.
		r := appendRun(t, late, p, batchesAt(50, 1, 10, stamp))
		if !errors.Is(r.Err, cluster.ErrFenced) {
			t.Errorf("duplicate: %+v", r)
		}
		if e := endOf(t, late, stretchOf(p)); !errors.Is(e.Err, cluster.ErrFenced) || e.LogEnd != 60 {
			t.Errorf("Ends of a fenced worker: %+v", e)
		}
		if e := beginAt(t, late, stretchOf(p)); e.LogEnd != 60 {
			t.Errorf("taking over: %+v", e)
		}
		mustAppend(t, late, p, batchesAt(60, 2, 10, now()))
		// Other boundaries, older, and what overlaps: refused.
		for name, stale := range map[string][]cluster.Batch{"overlap": batchesAt(60, 1, 15, now()), "same start": batchesAt(60, 1, 5, now())} {
			if r := appendRun(t, c, p, stale); !errors.Is(r.Err, cluster.ErrOutOfOrder) {
				t.Errorf("%s: %+v", name, r)
			}
			endOf(t, c, stretchOf(p))
			beginAtEnd(t, c, p, 80)
			c.lane(p).tail = 60 // believe in an old log end again
		}
		if e := endOf(t, c, stretchOf(p)); e.LogEnd != 80 {
			t.Errorf("log end %d, want 80", e.LogEnd)
		}
	})
}

// beginAtEnd asks until the stretch is taken over.
func beginAtEnd(t *testing.T, c *Cluster, p cluster.Partition, end int64) {
	t.Helper()
	if e := beginAt(t, c, stretchOf(p)); e.LogEnd != end {
		t.Fatalf("log end %d, want %d", e.LogEnd, end)
	}
}

func TestRealForeignWrites(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		var o *cluster.OffsetError
		idle := realTopic(t, k, "foreign-idle", nil)
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(idle))
		mustAppend(t, c, idle, batchesAt(0, 1, 100, now()))
		produceForeign(t, c, idle, 5)
		for name, worker := range map[string]*Cluster{"same": c, "new": open(t, k.Bootstrap())} {
			e := endOf(t, worker, stretchOf(idle))
			if !errors.Is(e.Err, cluster.ErrForeignWrite) || !errors.As(e.Err, &o) || o.Span != (cluster.Span{From: 100, To: 105}) {
				t.Errorf("%s worker before anything was appended: %+v", name, e)
			}
		}
		busy := realTopic(t, k, "foreign-busy", nil)
		beginAt(t, c, stretchOf(busy))
		mustAppend(t, c, busy, batchesAt(0, 1, 100, now()))
		produceForeign(t, c, busy, 5)
		held := make(chan fetcher.Result, 1) // both in one go, so that both are under way
		c.Append(busy, batchesAt(100, 2, 10, now()), nil, func(r fetcher.Result) { held <- r })
		r := wait(t, held)
		if errors.As(r.Err, &o) && o.Span.To < 125 {
			raw(t, c, busy, zombieOf(c, busy, 110, 10)) // the second batch, if it was not under way
		}
		if !errors.Is(r.Err, cluster.ErrDisplaced) || !errors.As(r.Err, &o) || o.Span.From != 105 || o.Span.To < 115 || r.Next != 100 {
			t.Errorf("behind a foreign write: %+v", r)
		}
		for name, worker := range map[string]*Cluster{"same": c, "new": open(t, k.Bootstrap())} {
			e := endOf(t, worker, stretchOf(busy))
			if !errors.Is(e.Err, cluster.ErrForeignWrite) || !errors.As(e.Err, &o) || o.Span.From != 100 || o.Span.To != 125 {
				t.Errorf("%s worker after displacement: %+v", name, e)
			}
		}
		prefix := realTopic(t, k, "foreign-prefix", nil)
		produceForeign(t, c, prefix, 10)
		if e := beginAt(t, c, stretchOf(prefix)); e.LogEnd != 10 || e.Stopped {
			t.Errorf("a prefix: %+v", e)
		}
		mustAppend(t, c, prefix, batchesAt(10, 2, 10, now()))
	})
}

func TestRealFenceAndZombie(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		for _, policy := range []string{"delete", "compact"} {
			p := realTopic(t, k, "fence-"+policy, map[string]string{"cleanup.policy": policy})
			c := open(t, k.Bootstrap())
			beginAt(t, c, stretchOf(p))
			stamp := now() - 60_000
			mustAppend(t, c, p, batchesAt(0, 2, 50, stamp))
			zombie := zombieOf(c, p, 100, 5)

			ends, err := c.Fence(within(t, 20*time.Second), []fetcher.Stretch{stretchOf(p)})
			if err != nil || ends[0].Err != nil || ends[0].LogEnd != 101 || ends[0].HighWatermark != 101 {
				t.Fatalf("%s: %+v %v", policy, ends, err)
			}
			fence := batch.Header(lastOf(t, readAll(t, c, p)))
			if fence.ProducerEpoch() != 1 || fence.MaxTimestamp() != stamp || fence.Base() != 100 {
				t.Errorf("%s: fence at %d with epoch %d, time %d", policy, fence.Base(), fence.ProducerEpoch(), fence.MaxTimestamp())
			}
			produceForeign(t, c, p, 5)
			if base, code := raw(t, c, p, zombie); code != 47 {
				t.Errorf("%s: zombie: code %d, base %d, want INVALID_PRODUCER_EPOCH", policy, code, base)
			}
			again, err := c.Fence(within(t, 20*time.Second), []fetcher.Stretch{stretchOf(p)})
			if err != nil || again[0].Err != nil || again[0].LogEnd != 106 {
				t.Errorf("%s: fenced again: %+v %v", policy, again, err)
			}
			if e := beginAt(t, open(t, k.Bootstrap()), stretchOf(p)); !e.Stopped || e.LogEnd != 106 {
				t.Errorf("%s: Ends behind fence and local writes: %+v", policy, e)
			}
			fresh := stretchOf(p)
			fresh.New = true
			beginAt(t, c, fresh)
			mustAppend(t, c, p, batchesAt(106, 2, 2, now()))
			if e := beginAt(t, open(t, k.Bootstrap()), stretchOf(p)); e.Stopped || e.LogEnd != 110 {
				t.Errorf("%s: second stretch: %+v", policy, e)
			}
		}
	})
}

// zombieOf is a batch as a late worker of the stretch would send it.
func zombieOf(c *Cluster, p cluster.Partition, base int64, records int) []byte {
	b := batchesAt(base, 1, records, now())[0].Bytes
	batch.Header(b).Patch(batch.Patch{LeaderEpoch: -1, ProducerID: c.lane(p).id, BaseSequence: sequence(base)})
	return b
}

func lastOf(t *testing.T, b []byte) []byte {
	t.Helper()
	var last []byte
	for w := batch.Walk(b); w.Next(); {
		last = w.Header()
	}
	return last
}

// The broker forgets a producer whose records are old. The stretch goes on by the
// log itself, with acks=all, and a worker that still grows the log is noticed.
func TestRealExpiredState(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "expired", map[string]string{"retention.ms": "-1", "message.timestamp.before.max.ms": "9223372036854775807"})
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(p))
		old := now() - (48 * time.Hour).Milliseconds()
		mustAppend(t, c, p, batchesAt(0, 4, 10, old))
		kafkatest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
			looks := make([]look, 1)
			c.lookAll(ctx, []fetcher.Stretch{stretchOf(p)}, looks)
			if len(looks[0].states) > 0 {
				return errors.New("the broker still knows the producer")
			}
			return looks[0].err
		})
		other := open(t, k.Bootstrap())
		if e := beginAt(t, other, stretchOf(p)); e.LogEnd != 40 {
			t.Fatalf("%+v", e)
		}
		if a, b := c.lane(p).id, other.lane(p).id; a != b || other.lane(p).proven {
			t.Errorf("ids %#x and %#x, proven %v", a, b, other.lane(p).proven)
		}
		mustAppend(t, other, p, batchesAt(40, 2, 10, old))
		beginAtEnd(t, other, p, 60)

		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for at := int64(60); ; at++ {
				select {
				case <-stop:
					return
				default:
				}
				if r := appendRun(t, other, p, batchesAt(at, 1, 1, old)); r.Err != nil {
					t.Error(r.Err)
					return
				}
			}
		}()
		e := endOf(t, open(t, k.Bootstrap()), stretchOf(p))
		close(stop)
		<-stopped
		if !errors.Is(e.Err, cluster.ErrFenced) {
			t.Errorf("a worker is active and the broker protects nothing: %+v", e)
		}
	})
}

// A request whose answer was lost: Ends tells whether it landed, and the run goes
// on from there.
func TestRealUnknownOutcome(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "unknown", nil)
		net := kafkatest.NewNetwork(t)
		c := open(t, k.Bootstrap(), func(cfg *Config) { cfg.Dial = net.Dial })
		end := beginAt(t, c, stretchOf(p)).LogEnd
		for range 5 {
			mustAppend(t, c, p, batchesAt(end, 2, 10, now()))
			end += 20
			shot := net.Link(k.Addr(1)).CutBeforeAnswer(3000)
			big := batchesAt(end, 1, 200, now())
			r := appendRun(t, c, p, big)
			<-shot.Done()
			if !errors.Is(r.Err, cluster.ErrUnknownOutcome) {
				t.Fatalf("%+v", r)
			}
			if e := beginAt(t, c, stretchOf(p)); e.LogEnd != end+200 {
				t.Fatalf("log end %d, the lost request reached %d", e.LogEnd, end+200)
			}
			end += 200
		}
		mustAppend(t, c, p, batchesAt(end, 2, 10, now()))
	})
}

// All codecs pass as they are: the bytes behind the header are the same (I1).
func TestRealCodecs(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		to := threeNodes(t, "4.4.0")
		name := unique("codecs")
		k.CreateTopic(t, name, 5, 1, nil)
		to.CreateTopic(t, name, 5, 1, nil)
		const records = 20_000
		k.Load(within(t, 60*time.Second), t, kafkatest.LoadSpec{Topic: name, Partitions: 5, Records: records, Keys: true, Headers: true, Nulls: true, Idempotent: true,
			BatchBytes: 50_000, Codecs: []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}})
		src, dst := open(t, k.Bootstrap()), open(t, to.Bootstrap())
		copyTopic(t, src, dst, name, 5)
		for i := range int32(5) {
			p := cluster.Partition{Topic: name, Partition: i}
			a, b := readAll(t, src, p), readAll(t, dst, p)
			wa, wb := batch.Walk(a), batch.Walk(b)
			n := 0
			for wa.Next() && wb.Next() {
				n++
				ha, hb := wa.Header(), wb.Header()
				if err := hb.Check(); err != nil {
					t.Fatal(err)
				}
				if ha.Base() != hb.Base() || ha.Attributes() != hb.Attributes() || !bytes.Equal(ha[batch.HeaderSize:], hb[batch.HeaderSize:]) {
					t.Fatalf("%v: batches at %d and %d differ", p, ha.Base(), hb.Base())
				}
			}
			if n == 0 || wa.Next() || wb.Next() {
				t.Errorf("%v: not the same number of batches", p)
			}
			sameRecords(t, src, dst, p, records/5)
		}
	})
}

func TestRealStartAtMillion(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		testStartAt(t, open(t, k.Bootstrap()), realTopic(t, k, "start", nil), 1_000_000)
	})
}

func TestRealTopicsAndGroups(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		c := open(t, k.Bootstrap())
		testTopics(t, c)
		topic := unique("grouped")
		k.CreateTopic(t, topic, 4, 1, nil)
		testGroups(t, c, topic, k.ClientOpts()...)
	})
}

// A destination that stamps records itself cannot hold a copy: found at the first
// batch.
func TestRealLogAppendTimeTopic(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "stamping", map[string]string{"message.timestamp.type": "LogAppendTime"})
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(p))
		if r := appendRun(t, c, p, batchesAt(0, 1, 10, now()-5000)); !errors.Is(r.Err, cluster.ErrLogAppendTime) {
			t.Errorf("%+v", r)
		}
	})
}

func TestRealTooLarge(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "small", map[string]string{"max.message.bytes": "2000"})
		c := open(t, k.Bootstrap())
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, batchesAt(0, 1, 10, now()))
		r := appendRun(t, c, p, batchesAt(10, 1, 500, now()))
		var o *cluster.OffsetError
		if !errors.Is(r.Err, cluster.ErrTooLarge) || !errors.As(r.Err, &o) || !bytes.Contains([]byte(o.Detail), []byte("is 2000")) || o.Span != (cluster.Span{From: 10, To: 510}) {
			t.Errorf("%+v", r)
		}
		beginAtEnd(t, c, p, 10)
		flipped := batchesAt(10, 1, 5, now())
		flipped[0].Bytes[80] ^= 4
		if r := appendRun(t, c, p, flipped); !errors.Is(r.Err, cluster.ErrCorrupt) {
			t.Errorf("a flipped bit: %+v", r)
		}
		beginAtEnd(t, c, p, 10)
	})
}
