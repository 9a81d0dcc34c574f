package main

import (
	"context"

	ibm "github.com/IBM/sarama"
)

// sarama is IBM's client.
func sarama(ctx context.Context, o order, show func(record) bool) error {
	c := ibm.NewConfig()
	c.Version = ibm.V2_1_0_0
	c.Consumer.IsolationLevel = ibm.ReadCommitted
	c.Consumer.Return.Errors = true
	consumer, err := ibm.NewConsumer(o.brokers, c)
	if err != nil {
		return err
	}
	defer consumer.Close()
	p, err := consumer.ConsumePartition(o.topic, o.partition, ibm.OffsetOldest)
	if err != nil {
		return err
	}
	defer p.AsyncClose()
	for {
		select {
		case m := <-p.Messages():
			r := record{Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: text(m.Key), Value: text(m.Value)}
			var hs headers
			for _, h := range m.Headers {
				hs.add(string(h.Key), h.Value)
			}
			if r.Headers = hs.String(); !show(r) {
				return nil
			}
		case err := <-p.Errors():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
