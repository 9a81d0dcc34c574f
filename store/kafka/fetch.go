package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fetchWait  = time.Second     // that a broker may wait for something new
	fetchGrace = 5 * time.Second // and that its answer may take on top
	fetchBytes = 16 << 20        // of an answer
	partBytes  = 1 << 20         // of a partition in it, at first

	// byNameFetch is the newest fetch version that names topics; it tells of cut logs.
	byNameFetch = 12

	latest   = int64(-1)
	earliest = int64(-2)
)

// read fetches partitions from their leader until something goes wrong.
func (t *tail) read(ctx context.Context, r *reader) error {
	conn, err := t.conn(ctx, r.broker, slotRead)
	if err != nil {
		return err
	}
	if err := t.locate(ctx, conn, r.parts); err != nil {
		return err
	}
	f := fetcher{t: t, conn: conn, parts: slices.Clone(r.parts), room: map[int32]int32{}}
	for {
		if err := f.turn(ctx); err != nil {
			return err
		}
		r.turns++
	}
}

// locate finds the log start of partitions that were never read.
func (t *tail) locate(ctx context.Context, conn *wire.Conn, parts []int32) error {
	next, _ := t.positions(parts)
	var fresh []int32
	for i, n := range parts {
		if next[i] < 0 {
			fresh = append(fresh, n)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	errs := map[int32]error{}
	if err := t.list(ctx, conn, fresh, earliest, errs, t.begin); err != nil {
		return err
	}
	for _, err := range errs {
		return err
	}
	return nil
}

// list asks for one kind of offset.
func (t *tail) list(ctx context.Context, conn *wire.Conn, parts []int32, kind int64, errs map[int32]error, found func(n int32, offset int64)) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = t.topic
	for _, n := range parts {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = n, kind
		topic.Partitions = append(topic.Partitions, p)
		errs[n] = errMissing
	}
	req.Topics = append(req.Topics, topic)
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	for _, topic := range answer.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range topic.Partitions {
			if _, asked := errs[p.Partition]; !asked || topic.Topic != t.topic {
				continue
			}
			if err := wire.CodeError(p.ErrorCode); err != nil {
				errs[p.Partition] = err
				continue
			}
			delete(errs, p.Partition)
			found(p.Partition, p.Offset)
		}
	}
	return nil
}

var errMissing = fmt.Errorf("%w: the broker's answer leaves the partition out", cluster.ErrUnknownOutcome)

// fetcher reads some partitions over one connection. Its decoder is its own.
type fetcher struct {
	t     *tail
	conn  *wire.Conn
	parts []int32 // the order of the next request: what got nothing comes first
	room  map[int32]int32
	d     batch.Decoder
}

// turn is one fetch.
func (f *fetcher) turn(ctx context.Context) error {
	next, epochs := f.t.positions(f.parts)
	req, version := f.request(next, epochs)
	bounded, cancel := context.WithTimeout(ctx, fetchWait+fetchGrace)
	answer, err := f.conn.DoVersion(bounded, req, version)
	cancel()
	if err != nil {
		return err
	}
	got := answer.(*kmsg.FetchResponse)
	if err := wire.CodeError(got.ErrorCode); err != nil {
		return err
	}
	asked := make(map[int32]int64, len(f.parts))
	for i, n := range f.parts {
		asked[n] = next[i]
	}
	return f.settle(got, asked)
}

func (f *fetcher) request(next []int64, epochs []int32) (*kmsg.FetchRequest, int16) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	req.SessionEpoch = -1 // no session: the partitions are few
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = f.t.topic
	for i, n := range f.parts {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.LastFetchedEpoch = n, next[i], epochs[i]
		p.PartitionMaxBytes = max(partBytes, f.room[n])
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req, min(byNameFetch, f.conn.MaxVersion(req.Key()))
}

// settle takes an answer. What was read of the good partitions is taken even where
// another one is in trouble.
func (f *fetcher) settle(got *kmsg.FetchResponse, asked map[int32]int64) error {
	fetched, ends := map[int32][]byte{}, map[int32]int64{}
	total := 0
	var trouble error
	for i := range got.Topics {
		for k := range got.Topics[i].Partitions {
			p := &got.Topics[i].Partitions[k]
			from, ok := asked[p.Partition]
			if !ok || got.Topics[i].Topic != f.t.topic {
				continue
			}
			total += len(p.RecordBatches)
			switch err := wire.CodeError(p.ErrorCode); {
			case p.ErrorCode == 1 || err == nil && p.DivergingEpoch.EndOffset >= 0:
				f.t.forget(p.Partition)
				trouble = fmt.Errorf("%w: partition %d of %s at offset %d", cluster.ErrOutOfRange, p.Partition, f.t.topic, from)
			case err != nil:
				trouble = fmt.Errorf("partition %d: %w", p.Partition, err)
			default:
				fetched[p.Partition], ends[p.Partition] = p.RecordBatches, p.HighWatermark
				f.widen(p.Partition, p.RecordBatches)
			}
		}
	}
	if trouble == nil && total == 0 {
		// Compaction may leave nothing between here and the high watermark. An answer
		// without any bytes was not cut short by a limit.
		for n, end := range ends {
			f.t.skip(n, asked[n], end)
		}
	}
	f.rotate(fetched)
	if err := f.t.take(fetched, &f.d); err != nil {
		return err
	}
	return trouble
}

// widen asks for more of a partition whose next batch did not fit.
func (f *fetcher) widen(n int32, b []byte) {
	delete(f.room, n)
	if len(b) == 0 {
		return
	}
	w := batch.Walk(b)
	if w.Next() {
		return
	}
	if rest := batch.Header(w.Rest()); len(rest) >= batch.HeaderSize {
		f.room[n] = int32(min(rest.Length(), 1<<30))
	}
}

// rotate puts the partitions that got nothing before those that got something, so
// that a limit of the answer does not always hit the same.
func (f *fetcher) rotate(fetched map[int32][]byte) {
	slices.SortStableFunc(f.parts, func(a, b int32) int { return min(len(fetched[a]), 1) - min(len(fetched[b]), 1) })
}
