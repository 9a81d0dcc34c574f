package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/kafka"
)

// runMirror embeds the engine as a host does, with its defaults.
func runMirror(ctx context.Context, j job) (took time.Duration, err error) {
	source, err := kafka.New(kafka.Config{Bootstrap: j.Source})
	if err != nil {
		return 0, err
	}
	destination, err := kafka.New(kafka.Config{Bootstrap: j.Destination})
	if err != nil {
		return 0, err
	}
	took, err = mirrorTo(ctx, j, source, destination, func(context.Context, *mirror.Mirror) error { return nil })
	return took, errors.Join(err, destination.Close())
}

// mirrorTo copies; after is done with the copy, and not in the time.
func mirrorTo(ctx context.Context, j job, source *kafka.Cluster, destination mirror.Destination, after func(context.Context, *mirror.Mirror) error) (took time.Duration, err error) {
	m, err := mirror.New("bench", source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: []string{j.Topic}}, Fetch: j.Fetch,
	})
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	began := time.Now()
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	if j.For > 0 {
		lasts(ctx, j.For)
	} else {
		err = waitCopied(ctx, m, source, j)
	}
	took = time.Since(began)
	if err == nil {
		err = after(ctx, m)
	}
	stop()
	return took, errors.Join(err, <-ran, source.Close())
}

// waitCopied returns when the destination has every record in front of its high
// watermark, and checks that this was all.
func waitCopied(ctx context.Context, m *mirror.Mirror, source *kafka.Cluster, j job) error {
	ps := make([]cluster.Partition, partitions)
	for i := range ps {
		ps[i] = cluster.Partition{Topic: j.Topic, Partition: int32(i)}
	}
	ends, err := source.Offsets(ctx, ps)
	if err != nil {
		return err
	}
	for i, p := range ps {
		if err := errors.Join(ends[i].Err, m.WaitMirrored(ctx, p, ends[i].HighWatermark-1)); err != nil {
			return err
		}
	}
	if s := m.Status(); s.Records != int64(j.Records) || s.Bytes != j.Bytes {
		return fmt.Errorf("copied %d records and %d bytes of %d and %d", s.Records, s.Bytes, j.Records, j.Bytes)
	}
	return nil
}

// lasts waits for a time or ctx.
func lasts(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// runLoop consumes and produces with franz-go: records are handed on as they were
// taken, with the same codec, into the same partitions of a topic that exists.
func runLoop(ctx context.Context, j job) (time.Duration, error) {
	began := time.Now()
	from := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		from[p] = kgo.NewOffset().AtStart()
	}
	source, err := kgo.NewClient(kgo.SeedBrokers(j.Source...), kgo.FetchMaxPartitionBytes(4<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.Topic: from}))
	if err != nil {
		return 0, err
	}
	defer source.Close()
	destination, err := kgo.NewClient(kgo.SeedBrokers(j.Destination...), kgo.ProducerBatchCompression(codecs[j.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<18), kgo.MaxBufferedBytes(64<<20), linger(j))
	if err != nil {
		return 0, err
	}
	defer destination.Close()
	if j.For > 0 {
		end, cancel := context.WithTimeout(ctx, j.For)
		defer cancel()
		ctx = end
	}
	var (
		mu     sync.Mutex
		failed error
	)
	promise := func(_ *kgo.Record, err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
	}
	for n := 0; n < j.Records || j.For > 0; {
		fetches := source.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			if j.For > 0 && ctx.Err() != nil {
				return time.Since(began), nil
			}
			return 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) { destination.Produce(ctx, r, promise) })
		n += fetches.NumRecords()
	}
	err = destination.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	return time.Since(began), errors.Join(err, failed)
}

// linger is none where the delay of a record is measured, else franz-go's own.
func linger(j job) kgo.Opt {
	if j.For > 0 {
		return kgo.ProducerLinger(0)
	}
	return kgo.ProducerLinger(10 * time.Millisecond)
}

const pipeBuffer = 256 << 10

// These hide ReadFrom and WriteTo: without them the kernel would pass the bytes on
// by itself (splice).
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// runPipe passes bytes on from one connection to another.
func runPipe(ctx context.Context, j job) (time.Duration, error) {
	began := time.Now()
	var d net.Dialer
	in, err := d.DialContext(ctx, "tcp", j.Source[0])
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := d.DialContext(ctx, "tcp", j.Destination[0])
	if err != nil {
		return 0, err
	}
	defer out.Close()
	n, err := io.CopyBuffer(onlyWriter{out}, onlyReader{in}, make([]byte, pipeBuffer))
	if err == nil && n != j.Bytes {
		err = fmt.Errorf("%d bytes of %d went through the pipe", n, j.Bytes)
	}
	return time.Since(began), err
}

// runEnds is what the pipe lies between: it feeds one connection and drains
// another.
func runEnds(_ context.Context, j job) (time.Duration, error) {
	began := time.Now()
	feed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer feed.Close()
	drain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer drain.Close()
	fmt.Println("ends", feed.Addr(), drain.Addr())
	var group errgroup.Group
	group.Go(func() error { return feedOne(feed, j.Bytes) })
	group.Go(func() error { return drainOne(drain, j.Bytes) })
	err = group.Wait()
	return time.Since(began), err
}

func feedOne(l net.Listener, n int64) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	for chunk := make([]byte, 1<<20); n > 0; {
		k, err := c.Write(chunk[:min(n, int64(len(chunk)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

func drainOne(l net.Listener, want int64) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := io.CopyBuffer(onlyWriter{io.Discard}, onlyReader{c}, make([]byte, 1<<20))
	if err == nil && n != want {
		err = fmt.Errorf("%d bytes of %d came out of the pipe", n, want)
	}
	return err
}
