package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// commitEvery is how often a member of a group commits what it has shown.
const commitEvery = 200 * time.Millisecond

// membership is where a member of a group reads: a topic, committed records only, from
// the first one on where the group has nothing committed.
type membership struct {
	brokers      []string
	group, topic string
}

// member reads until ctx ends, then commits and leaves.
type member func(ctx context.Context, in membership, show func(record) error) error

var members = map[string]member{"kafka-go": segmentioMember, "franz-go": franzMember}

func franzMember(ctx context.Context, in membership, show func(record) error) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumerGroup(in.group),
		kgo.ConsumeTopics(in.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(commitEvery))
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(_ string, p int32, err error) { fmt.Fprintf(os.Stderr, "partition %d: %v\n", p, err) })
		for _, m := range fetches.Records() {
			if err := show(record{Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: text(m.Key), Value: text(m.Value)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func segmentioMember(ctx context.Context, in membership, show func(record) error) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: in.brokers, GroupID: in.group, Topic: in.topic, IsolationLevel: kafka.ReadCommitted, StartOffset: kafka.FirstOffset,
		MaxBytes: 32 << 20, MaxWait: 500 * time.Millisecond, CommitInterval: commitEvery,
	})
	for {
		m, err := r.ReadMessage(ctx)
		if ctx.Err() != nil {
			return r.Close()
		}
		if errors.Is(err, io.EOF) {
			return errors.Join(err, r.Close())
		}
		if err != nil { // it goes on by itself
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		if err := show(record{Partition: int32(m.Partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: text(m.Key), Value: text(m.Value)}); err != nil {
			return err
		}
	}
}
