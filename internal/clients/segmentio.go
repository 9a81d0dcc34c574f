package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio is kafka-go.
func segmentio(ctx context.Context, o order, show func(record) bool) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: o.brokers, Topic: o.topic, Partition: int(o.partition), IsolationLevel: kafka.ReadCommitted, MaxBytes: 32 << 20,
		MaxWait: 500 * time.Millisecond, // closing waits for it
	})
	defer r.Close()
	for {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return err
		}
		out := record{Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: text(m.Key), Value: text(m.Value)}
		var hs headers
		for _, h := range m.Headers {
			hs.add(h.Key, h.Value)
		}
		if out.Headers = hs.String(); !show(out) {
			return nil
		}
	}
}
