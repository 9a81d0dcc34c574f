package acceptance

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// pulse knows for how long things stood still.
type pulse struct {
	mu   sync.Mutex
	last map[cluster.Partition]time.Time
	most map[cluster.Partition]gap
}

// gap is a time without a record.
type gap struct{ from, to time.Time }

func (g gap) length() time.Duration { return g.to.Sub(g.from) }

func (p *pulse) beat(of cluster.Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.last == nil {
		p.last = make(map[cluster.Partition]time.Time)
	}
	if last, ok := p.last[of]; ok && now.Sub(last) > p.most[of].length() {
		if p.most == nil {
			p.most = make(map[cluster.Partition]gap)
		}
		p.most[of] = gap{last, now}
	}
	p.last[of] = now
}

// begin forgets what was before.
func (p *pulse) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = nil
}

// gaps are the longest of each partition since begin.
func (p *pulse) gaps() map[cluster.Partition]gap {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.most)
}

// longest is how long anything stood still since begin, or still stands.
func (p *pulse) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := time.Duration(0)
	for of, last := range p.last {
		most = max(most, p.most[of].length(), time.Since(last))
	}
	return most.Round(10 * time.Millisecond)
}

// nimble are the options of clients that notice soon who leads, so that what they are
// kept waiting for is the cluster's doing. From a process that is frozen they part after
// two seconds and the wait of the request.
var nimble = []kgo.Opt{
	kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
	kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RequestTimeoutOverhead(2 * time.Second),
	kgo.DialTimeout(2 * time.Second),
}

// background is work that is ended, and waited for, before the test is.
type background struct {
	t      *testing.T
	ctx    context.Context
	cancel context.CancelFunc
	under  sync.WaitGroup
}

func newBackground(t *testing.T) *background {
	b := &background{t: t}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	t.Cleanup(b.end)
	return b
}

func (b *background) end() {
	b.cancel()
	b.under.Wait()
}

// every does something again and again.
func (b *background) every(d time.Duration, do func(ctx context.Context, n int)) {
	b.under.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for n := 0; b.ctx.Err() == nil; n++ {
			do(b.ctx, n)
			select {
			case <-b.ctx.Done():
			case <-tick.C:
			}
		}
	})
}

var padding = strings.Repeat("x", 300)

// writes has records written to all partitions of a topic, each 10 ms, none like another.
func (b *background) writes(c *kafkatest.Cluster, topic string, partitions int32, acked *pulse) {
	cl := c.Client(b.t, append(nimble, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(2000))...)
	b.every(10*time.Millisecond, func(ctx context.Context, n int) {
		for p := range partitions {
			r := &kgo.Record{Topic: topic, Partition: p, Key: strconv.AppendInt(nil, int64(n%50), 10), Value: fmt.Appendf(nil, "%d %s", n, padding)}
			cl.TryProduce(ctx, r, func(r *kgo.Record, err error) {
				if err == nil {
					acked.beat(cluster.Partition{Topic: topic, Partition: r.Partition})
				}
			})
		}
	})
}

// transacts has transactions written to a topic, of which one of four is aborted.
func (b *background) transacts(c *kafkatest.Cluster, topic string, partitions int32, acked *pulse) {
	var cl *kgo.Client
	b.t.Cleanup(func() {
		if cl != nil {
			cl.Close()
		}
	})
	b.every(50*time.Millisecond, func(ctx context.Context, n int) {
		if cl == nil {
			var err error
			cl, err = kgo.NewClient(append(append(c.ClientOpts(), nimble...), kgo.TransactionalID(topic), kgo.TransactionTimeout(10*time.Second),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
			if err != nil {
				b.t.Error(err)
				return
			}
		}
		if err := transact(ctx, cl, topic, partitions, n); err != nil {
			cl.Close() // the next one ends what this one has left open
			cl = nil
			return
		}
		for p := range partitions {
			acked.beat(cluster.Partition{Topic: topic, Partition: p})
		}
	})
}

func transact(ctx context.Context, cl *kgo.Client, topic string, partitions int32, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for p := range partitions {
		for i := range 3 {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%d.%d %s", n, i, padding)})
		}
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TransactionEndTry(n%4 != 3))
}

// intruders are those that try to write to mirror topics.
type intruders struct {
	tries, taken atomic.Int64
	mu           sync.Mutex
	where        []string
}

func (i *intruders) answered(who string, of cluster.Partition, offset int64, err error) {
	i.tries.Add(1)
	if err != nil {
		return
	}
	i.taken.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.where = append(i.where, fmt.Sprintf("%s: %v at offset %d", who, of, offset))
}

// intrudes tries to write to all partitions at every moment: as producers do, which ask
// the leader that they know of, and at each broker straight.
func (b *background) intrudes(c *kafkatest.Cluster, all []cluster.Partition, us []int32) *intruders {
	i := &intruders{}
	common := append(nimble, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(time.Second), kgo.MaxBufferedRecords(200))
	for who, opts := range map[string][]kgo.Opt{
		"acks=1": {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
		"acks=0": {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())},
		"all":    {},
	} {
		cl := c.Client(b.t, append(opts, common...)...)
		b.every(50*time.Millisecond, func(ctx context.Context, n int) {
			p := all[n%len(all)]
			cl.TryProduce(ctx, &kgo.Record{Topic: p.Topic, Partition: p.Partition, Value: []byte("of others")}, func(r *kgo.Record, err error) {
				if who != "acks=0" { // nobody answers: the logs tell
					i.answered(who, p, r.Offset, err)
				}
			})
		})
	}
	straight := c.Client(b.t, kgo.MaxVersions(kversion.V3_9_0()), kgo.RequestRetries(0), kgo.DialTimeout(time.Second))
	brokers := us
	for n := range c.Nodes() {
		brokers = append(brokers, int32(n+1))
	}
	for _, at := range brokers {
		b.every(50*time.Millisecond, func(ctx context.Context, n int) {
			p := all[rand.IntN(len(all))]
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			offset, err := produceAt(ctx, straight, at, p)
			i.answered(fmt.Sprint("at broker ", at), p, offset, err)
		})
	}
	return i
}

// produceAt asks one broker to take a record, whoever leads.
func produceAt(ctx context.Context, cl *kgo.Client, at int32, p cluster.Partition) (int64, error) {
	return produceBatchAt(ctx, cl, at, p, batch.Spec{Records: []batch.Record{{Value: []byte("of others")}}})
}

// produceBatchAt asks one broker to take a batch. The client is one that names topics.
func produceBatchAt(ctx context.Context, cl *kgo.Client, at int32, p cluster.Partition, b batch.Spec) (int64, error) {
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = p.Partition, batch.Encode(b)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = p.Topic, append(topic.Partitions, part)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = 1, 1000, append(req.Topics, topic)
	resp, err := cl.Broker(int(at)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return got.BaseOffset, kerr.ErrorForCode(got.ErrorCode)
}
