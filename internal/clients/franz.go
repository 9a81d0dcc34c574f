package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is franz-go.
func franz(ctx context.Context, o order, show func(record) bool) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.topic: {o.partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, m := range fetches.Records() {
			r := record{Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: text(m.Key), Value: text(m.Value)}
			var hs headers
			for _, h := range m.Headers {
				hs.add(h.Key, h.Value)
			}
			if r.Headers = hs.String(); !show(r) {
				return nil
			}
		}
	}
}
