package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/zoo"
)

// BrokerConfig is what goes into the brokers' settings so that their cleaner and their
// retention do soon what they have to do to a zoo.
func BrokerConfig() map[string]string {
	return map[string]string{
		"log.cleaner.backoff.ms":          "100",
		"log.cleaner.dedupe.buffer.size":  "8388608",
		"log.retention.check.interval.ms": "200",
		"log.initial.task.delay.ms":       "100", // before 3.5 it is 30 s, and no setting
	}
}

// Options of a zoo.
type Options struct {
	// Client reaches the cluster, of one node.
	Client []kgo.Opt
	// Reader reads the same cluster raw.
	Reader Reader
	// Release is the brokers', as "2.8.2": those before 3.0 get messages of old formats.
	Release string
	// Prefix begins the names of the topics.
	Prefix string
	// Seed chooses what is written.
	Seed uint64
	// Batches is how many there are in the larger logs. Default: 60.
	Batches int
}

// Topic is one of the zoo.
type Topic struct {
	Name       string
	Partitions int32
	// Says what it is for.
	Says string
	// Wants are the shapes that are there for certain, over all partitions together.
	Wants []Shape
	// Census is what there is.
	Census Census
	// Truth is what consumers of committed records must read of a partition, where that
	// is known beforehand: neither the broker's clock nor its cleaner had a part in it.
	Truth map[int32]*zoo.Log
	// Open are the transactional ids whose transactions have no end. Who begins with one
	// of them aborts it.
	Open []string
}

// filler makes one zoo.
type filler struct {
	Options
	w *writer
}

// Fill makes the topics, and returns when nothing changes any more in them and all have
// the shapes they are made for.
func Fill(ctx context.Context, o Options) ([]Topic, error) {
	if o.Batches <= 0 {
		o.Batches = 60
	}
	w, err := newWriter(o.Client, modern)
	if err != nil {
		return nil, err
	}
	defer w.close()
	f := &filler{o, w}
	makers := []func(context.Context) (Topic, error){f.plain, f.transactions, f.compacted, f.stamped, f.sizes, f.aged}
	if o.old() {
		makers = append(makers, f.oldFormats)
	}
	topics := make([]Topic, len(makers))
	g, ctx := errgroup.WithContext(ctx)
	for i, make := range makers {
		g.Go(func() (err error) {
			topics[i], err = make(ctx)
			if err != nil {
				return fmt.Errorf("zoo %s: %w", topics[i].Name, err)
			}
			return f.count(ctx, &topics[i])
		})
	}
	return topics, g.Wait()
}

// old says that the brokers keep messages of old formats.
func (o Options) old() bool { return strings.HasPrefix(o.Release, "2.") }

// count makes the census and finds what is missing.
func (f *filler) count(ctx context.Context, t *Topic) error {
	t.Census = Census{}
	for i := range t.Partitions {
		c, err := Count(ctx, f.Reader, cluster.Partition{Topic: t.Name, Partition: i})
		if err != nil {
			return err
		}
		t.Census.Add(c)
	}
	if missing := t.Census.Missing(t.Wants); len(missing) > 0 {
		return fmt.Errorf("%s has no %q, it has %v", t.Name, missing, t.Census)
	}
	return nil
}

// make creates one of the topics.
func (f *filler) make(ctx context.Context, name, says string, partitions int32, configs map[string]string, wants ...Shape) (Topic, map[string]string, error) {
	t := Topic{Name: f.Prefix + name, Partitions: partitions, Says: says, Wants: wants, Truth: map[int32]*zoo.Log{}}
	all := map[string]string{"retention.ms": "-1"}
	if strings.HasPrefix(f.Release, "4.") { // others let timestamps be in the future
		all["message.timestamp.after.max.ms"] = "9223372036854775807"
	}
	for k, v := range configs {
		all[k] = v
	}
	return t, all, f.w.create(ctx, t.Name, partitions, all)
}

// log is one to be written, another one for each use.
func (f *filler) log(use uint64, o zoo.Options) *zoo.Log {
	o.Produced = true
	if o.Batches == 0 {
		o.Batches = f.Batches
	}
	return zoo.Generate(f.Seed<<8+use, o)
}

// write replays a log whose contents are the truth about the partition.
func (f *filler) write(ctx context.Context, t *Topic, partition int32, l *zoo.Log) error {
	t.Truth[partition] = l
	p := cluster.Partition{Topic: t.Name, Partition: partition}
	open := map[string]bool{}
	for _, b := range l.Batches {
		if b.Transaction != nil && b.Transaction.Fate == zoo.Open {
			open[txnOf(p, b.Transaction.Producer)] = true
		}
	}
	t.Open = append(t.Open, slices.Sorted(maps.Keys(open))...)
	_, err := f.w.replay(ctx, p, l)
	return err
}

// cut deletes the records before the middle of a batch, and says so in the truth.
func (f *filler) cut(ctx context.Context, t Topic, partition int32, l *zoo.Log) error {
	i := len(l.Batches) / 4
	for ; len(l.Batches[i].Records) < 2; i++ {
	}
	l.Start = l.Batches[i].Records[len(l.Batches[i].Records)/2].Offset
	l.Batches = slices.Delete(l.Batches, 0, i)
	return f.w.trim(ctx, cluster.Partition{Topic: t.Name, Partition: partition}, l.Start)
}
