package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// eachWay runs a test against each version, with markers and with phantoms.
func eachWay(t *testing.T, test func(t *testing.T, k *kafkatest.Cluster, way GapFill)) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		for _, way := range []GapFill{GapMarkers, GapPhantoms} {
			t.Run(way.String(), func(t *testing.T) { test(t, k, way) })
		}
	})
}

// holed is a run with gaps between batches, at its end, and of more than one round of
// markers and one batch of phantoms where long is so large.
func holed(from, long int64) (run []cluster.Batch, records []cluster.Span) {
	run = append(run, batchesAt(from, 1, 5, now())...)
	run = append(run, hole(from+5, from+7), hole(from+7, from+8))
	run = append(run, batchesAt(from+8, 2, 6, now())...)
	run = append(run, hole(from+20, from+20+long))
	run = append(run, batchesAt(from+20+long, 1, 5, now())...)
	run = append(run, hole(from+25+long, from+26+long))
	return run, []cluster.Span{{From: from, To: from + 5}, {From: from + 8, To: from + 20}, {From: from + 20 + long, To: from + 25 + long}}
}

func TestRealFillsHoles(t *testing.T) {
	eachWay(t, func(t *testing.T, k *kafkatest.Cluster, way GapFill) {
		for _, policy := range []string{"delete", "compact"} {
			p := realTopic(t, k, "holes", map[string]string{"cleanup.policy": policy, "max.message.bytes": "100000"})
			c := open(t, k.Bootstrap(), filledBy(way))
			beginAt(t, c, stretchOf(p))
			var records []cluster.Span
			end := int64(0)
			for i, long := range []int64{1, 9000, 70} {
				run, spans := holed(end, long)
				mustAppend(t, c, p, run)
				records = append(records, spans...)
				end += 26 + long
				if i == 1 { // a worker that has just been started goes on
					c = open(t, k.Bootstrap(), filledBy(way))
					beginAtEnd(t, c, p, end)
				}
			}
			holds(t, c, p, records...)
			committedReader(t, k, p, records, end)
		}
	})
}

// committedReader compares with what a client of another kind sees.
func committedReader(t *testing.T, k *kafkatest.Cluster, p cluster.Partition, records []cluster.Span, end int64) {
	t.Helper()
	cl := k.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.Topic: {p.Partition: kgo.NewOffset().AtStart()}}))
	ctx := within(t, 30*time.Second)
	for _, s := range records {
		for o := s.From; o < s.To; {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			for _, r := range fetches.Records() {
				for len(records) > 0 && r.Offset >= records[0].To {
					records = records[1:]
					o = max(o, r.Offset)
				}
				if len(records) == 0 || r.Offset < records[0].From || string(r.Value) != fmt.Sprint("value of ", r.Offset) {
					t.Fatalf("a reader sees %q at %d, want %v", r.Value, r.Offset, records)
				}
				o = max(o, r.Offset+1)
			}
			if o >= end-1 {
				return
			}
		}
	}
}

// A process dies at any of its writes, before or after it has reached the broker: the
// next one goes on from what is there, and every record stands where it belongs (I4).
func TestRealFillsAfterEveryCrash(t *testing.T) {
	eachWay(t, func(t *testing.T, k *kafkatest.Cluster, way GapFill) {
		const most = 40
		topic := unique("crashes")
		k.CreateTopic(t, topic, 2*most, 1, nil)
		tried := crashed(t, k, way, cluster.Partition{Topic: topic}, 1<<20, true)
		if tried < 1 || way == GapMarkers && tried < 5 || tried > most {
			t.Fatalf("%d writes", tried)
		}
		t.Run("at", func(t *testing.T) {
			step := 1
			if k.Version() != kafkatest.DefaultVersion {
				step = 3
			}
			for at := 1; at <= tried; at += step {
				for i, through := range []bool{true, false} {
					p := cluster.Partition{Topic: topic, Partition: int32(2*at - 1 + i)}
					t.Run(fmt.Sprint(at, through), func(t *testing.T) {
						t.Parallel()
						crashed(t, k, way, p, at, through)
					})
				}
			}
		})
	})
}

// crashed appends with a process that dies at a write, and then with others until all is
// there. It gives how many writes the first made.
func crashed(t *testing.T, k *kafkatest.Cluster, way GapFill, p cluster.Partition, at int, through bool) int {
	d := &deadly{at: -1, through: through}
	first := open(t, k.Bootstrap(), filledBy(way), func(cfg *Config) { cfg.Dial = d.dial })
	beginAt(t, first, stretchOf(p))
	mustAppend(t, first, p, batchesAt(0, 1, 4, now())) // connections and metadata are there
	mustAppend(t, first, p, []cluster.Batch{hole(4, 5)})
	d.arm(at)
	run, records := holed(5, 5000)
	records = append(records, cluster.Span{From: 0, To: 4})
	end := run[len(run)-1].Next
	got := make(chan fetcher.Result, 1)
	first.Append(p, run, nil, func(r fetcher.Result) { got <- r })
	r := wait(t, got)
	writes := d.count()
	next := open(t, k.Bootstrap(), filledBy(way))
	e := endOf(t, next, stretchOf(p))
	for errors.Is(e.Err, cluster.ErrFenced) { // what the first had sent is still being written
		e = endOf(t, next, stretchOf(p))
	}
	if e.Err != nil || e.LogEnd < r.Next || e.LogEnd > end {
		t.Fatalf("the first died after %d: %v; the next one finds %+v", r.Next, r.Err, e)
	}
	if rest := from(run, e.LogEnd); len(rest) > 0 {
		mustAppend(t, next, p, rest)
	}
	last := open(t, k.Bootstrap(), filledBy(way))
	beginAtEnd(t, last, p, end)
	holds(t, last, p, records...)
	return writes
}

// from is the rest of a run behind an offset. It may be inside a hole, but in no batch.
func from(run []cluster.Batch, offset int64) (rest []cluster.Batch) {
	for _, b := range run {
		if b.Next <= offset {
			continue
		}
		if b.Hole() {
			b.Base = max(b.Base, offset)
		}
		rest = append(rest, b)
	}
	return rest
}

// deadly dials connections that all break at one write.
type deadly struct {
	through bool // the write reaches the other side
	mu      sync.Mutex
	at, n   int
	conns   []net.Conn
}

func (d *deadly) arm(at int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.n = at, 0
}

func (d *deadly) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

func (d *deadly) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at > 0 && d.n >= d.at {
		conn.Close()
		return nil, errors.New("dead")
	}
	d.conns = append(d.conns, conn)
	return mortal{conn, d}, nil
}

type mortal struct {
	net.Conn
	d *deadly
}

func (m mortal) Write(b []byte) (int, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.n++
	dies := m.d.n == m.d.at
	if dies && !m.d.through {
		m.d.kill()
	}
	n, err := m.Conn.Write(b)
	if dies {
		m.d.kill()
	}
	return n, err
}

func (d *deadly) kill() {
	for _, c := range d.conns {
		c.Close()
	}
}

// A late worker's markers: the broker refuses them, whatever the offsets, and data as
// always.
func TestRealLateMarkers(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		p := realTopic(t, k, "late-markers", nil)
		a, b := open(t, k.Bootstrap()), open(t, k.Bootstrap())
		beginAt(t, a, stretchOf(p))
		mustAppend(t, a, p, append(batchesAt(0, 1, 5, now()), hole(5, 10)))
		late := a.lane(p).marking(hole(10, 14)) // of a worker that freezes now
		beginAtEnd(t, b, p, 10)
		mustAppend(t, b, p, append([]cluster.Batch{hole(10, 14)}, batchesAt(14, 1, 5, now())...))
		ctx := within(t, 20*time.Second)
		for name, m := range map[string]marking{
			"behind":      late,
			"the last":    {p: p, broker: late.broker, marks: late.marks, turn: late.turn, next: 13, to: 14},
			"at the end":  {p: p, broker: late.broker, marks: late.marks, turn: late.turn, next: 19, to: 25},
			"in our turn": {p: p, broker: late.broker, marks: late.marks, turn: b.lane(p).turn, next: 12, to: 13},
		} {
			a.generation().scribe(m.broker).round(ctx, &m)
			if m.judge(); !errors.Is(m.err, cluster.ErrFenced) {
				t.Errorf("%s: %v, log end %d", name, m.err, m.end)
			}
		}
		r := appendRun(t, a, p, append([]cluster.Batch{hole(10, 14)}, batchesAt(14, 1, 5, now())...))
		if !errors.Is(r.Err, cluster.ErrFenced) || r.Batches != 0 {
			t.Errorf("the late worker itself: %+v", r)
		}
		mustAppend(t, b, p, append([]cluster.Batch{hole(19, 20)}, batchesAt(20, 1, 5, now())...))
		holds(t, b, p, cluster.Span{From: 0, To: 5}, cluster.Span{From: 14, To: 19}, cluster.Span{From: 20, To: 25})
	})
}

// Somebody writes where markers are about to be written, at any moment: nothing more is
// appended, and the next look says so (I4).
func TestRealForeignWriteBetweenMarkers(t *testing.T) {
	onReal(t, func(t *testing.T, k *kafkatest.Cluster) {
		for _, when := range []int64{5, 6, 4000, 9000} {
			p := realTopic(t, k, "foreign-markers", nil)
			c := open(t, k.Bootstrap())
			beginAt(t, c, stretchOf(p))
			mustAppend(t, c, p, batchesAt(0, 1, 5, now()))
			m := c.lane(p).marking(hole(5, 9000))
			wrote := false
			for m.next < m.to && m.err == nil {
				if m.next >= when && !wrote {
					produceForeign(t, c, p, 2)
					wrote = true
				}
				c.generation().scribe(m.broker).round(t.Context(), &m)
				m.judge()
			}
			if !wrote {
				produceForeign(t, c, p, 2)
			} else if m.err == nil {
				t.Errorf("written at %d: unnoticed", when)
			}
			for name, w := range map[string]*Cluster{"the same": c, "another": open(t, k.Bootstrap())} {
				e := endOf(t, w, stretchOf(p))
				var o *cluster.OffsetError
				foreign := errors.Is(e.Err, cluster.ErrForeignWrite) && errors.As(e.Err, &o) && o.Span.To == e.LogEnd
				if !foreign && (w != c || !errors.Is(e.Err, cluster.ErrFenced)) {
					t.Errorf("written at %d, %s process: %+v", when, name, e)
				}
			}
		}
	})
}

// Two workers fill and copy at the same time, and hand over to each other all the while:
// in the end every record stands where it belongs, once (I4).
func TestRealTwoWorkersFill(t *testing.T) {
	eachWay(t, func(t *testing.T, k *kafkatest.Cluster, way GapFill) {
		p := realTopic(t, k, "two-workers", nil)
		var run []cluster.Batch
		var records []cluster.Span
		for range 15 {
			from := int64(0)
			if len(run) > 0 {
				from = run[len(run)-1].Next
			}
			more, spans := holed(from, 40)
			run, records = append(run, more...), append(records, spans...)
		}
		end := run[len(run)-1].Next
		ctx := within(t, 60*time.Second)
		var wg sync.WaitGroup
		for owner := range int32(2) {
			wg.Go(func() {
				c, s := open(t, k.Bootstrap(), filledBy(way)), stretchOf(p)
				s.Owner = owner + 1
				for at := int64(0); at < end && ctx.Err() == nil; {
					ends, err := c.Ends(ctx, []fetcher.Stretch{s})
					if err != nil || ends[0].Err != nil {
						if err == nil && !errors.Is(ends[0].Err, cluster.ErrFenced) {
							t.Errorf("worker %d: %v", s.Owner, ends[0].Err)
							return
						}
						continue
					}
					at = ends[0].LogEnd
					for _, b := range from(copied(run), at) {
						got := make(chan fetcher.Result, 1)
						c.Append(p, []cluster.Batch{b}, nil, func(r fetcher.Result) { got <- r })
						if r := <-got; r.Err != nil {
							break
						}
					}
				}
			})
		}
		wg.Wait()
		last := open(t, k.Bootstrap(), filledBy(way))
		beginAtEnd(t, last, p, end)
		holds(t, last, p, records...)
	})
}

// copied is a run with bytes of its own, which an append may change.
func copied(run []cluster.Batch) []cluster.Batch {
	run = slices.Clone(run)
	for i := range run {
		run[i].Bytes = bytes.Clone(run[i].Bytes)
	}
	return run
}

// Fences work behind markers: a late batch of the stretch is refused.
func TestRealFenceBehindMarkers(t *testing.T) {
	eachWay(t, func(t *testing.T, k *kafkatest.Cluster, way GapFill) {
		p := realTopic(t, k, "fence-markers", nil)
		c := open(t, k.Bootstrap(), filledBy(way))
		beginAt(t, c, stretchOf(p))
		mustAppend(t, c, p, append(batchesAt(0, 2, 50, now()), hole(100, 110)))
		l := c.lane(p)
		zombie := zombieOf(c, p, 110-l.shift, 5)
		ends, err := c.Fence(within(t, 20*time.Second), []fetcher.Stretch{stretchOf(p)})
		if err != nil || ends[0].Err != nil || ends[0].LogEnd != 111 {
			t.Fatalf("%+v %v", ends, err)
		}
		if base, code := raw(t, c, p, zombie); code != 47 {
			t.Errorf("zombie: code %d, base %d", code, base)
		}
		if e := beginAt(t, open(t, k.Bootstrap(), filledBy(way)), stretchOf(p)); !e.Stopped || e.LogEnd != 111 {
			t.Errorf("behind the fence: %+v", e)
		}
		fresh := stretchOf(p)
		fresh.New = true
		beginAt(t, c, fresh)
		mustAppend(t, c, p, append([]cluster.Batch{hole(111, 112)}, batchesAt(112, 2, 2, now())...))
		beginAtEnd(t, open(t, k.Bootstrap(), filledBy(way)), p, 116)
	})
}

// The right to write into a topic is not enough for markers: the error says what is
// missing, nothing has landed, and with phantoms it goes on.
func TestRealMarkersNotPermitted(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true",
	}})
	p := realTopic(t, k, "unpermitted", nil)
	onlyAdmin(t, k.Client(t))
	login := func(cfg *Config) {
		cfg.SASL = plain.Mechanism{Username: k.Options().User, Password: k.Options().Password}
	}
	c := open(t, k.Bootstrap(), login)
	beginAt(t, c, stretchOf(p))
	var r fetcher.Result
	until(t, func() bool { // the rule reaches the broker a moment later
		end := beginAt(t, c, stretchOf(p)).LogEnd
		r = appendRun(t, c, p, append(batchesAt(end, 1, 5, now()), hole(end+5, end+7)))
		return r.Err != nil
	})
	if !errors.Is(r.Err, cluster.ErrGap) || !errors.Is(r.Err, cluster.ErrAuthorization) || r.Batches != 1 {
		t.Errorf("%+v", r)
	}
	t.Log(r.Err)
	other := open(t, k.Bootstrap(), login, filledBy(GapPhantoms))
	beginAtEnd(t, other, p, r.Next)
	mustAppend(t, other, p, []cluster.Batch{hole(r.Next, r.Next+2)})
}

// onlyAdmin leaves rights on the cluster to one user that does not exist.
func onlyAdmin(t *testing.T, cl *kgo.Client) {
	req := kmsg.NewPtrCreateACLsRequest()
	rule := kmsg.NewCreateACLsRequestCreation()
	rule.ResourceType, rule.ResourceName, rule.ResourcePatternType = kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLResourcePatternTypeLiteral
	rule.Principal, rule.Host, rule.Operation, rule.PermissionType = "User:admin", "*", kmsg.ACLOperationAll, kmsg.ACLPermissionTypeAllow
	req.Creations = append(req.Creations, rule)
	if resp, err := req.RequestWith(t.Context(), cl); err != nil || resp.Results[0].ErrorCode != 0 {
		t.Fatal(resp, err)
	}
}
