package acceptance

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestSecure: TLS and SCRAM on one side, PLAIN on the other (on both from old sources),
// and sessions that live three seconds, so that connections log in again while they are in use
// (KIP-368, C8.9). Nothing is lost and nothing fails.
func TestSecure(t *testing.T) {
	reauth := map[string]string{"connections.max.reauth.ms": "3000"}
	secure := kafkatest.Options{Version: sourceVersion(), SASL: "SCRAM-SHA-512", TLS: true, Config: reauth}
	switch secure.Version { // what kafkatest gives clusters with a ZooKeeper
	case "2.8.2":
		secure.SASL = "PLAIN"
	case "2.1.1":
		secure.SASL, secure.TLS = "PLAIN", false
	}
	src := kafkatest.Start(t, secure)
	dst := kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", Config: reauth})
	var mechanism sasl.Mechanism = plain.Mechanism{Username: src.Options().User, Password: src.Options().Password}
	if secure.SASL != "PLAIN" {
		var err error
		if mechanism, err = scram.Mechanism(scram.SHA512, src.Options().User, src.Options().Password); err != nil {
			t.Fatal(err)
		}
	}
	const topic, parts = "secure", 2
	src.CreateTopic(t, topic, parts, 1, nil)
	stop := writer(t, src, topic, parts, 0)
	source := connect(t, src, func(c *kafka.Config) { c.TLS, c.SASL = src.TLSConfig(), mechanism })
	destination := connect(t, dst, func(c *kafka.Config) {
		c.SASL = plain.Mechanism{Username: dst.Options().User, Password: dst.Options().Password}
	})
	m := run(t, "secure", source, destination, mirror.Options{Topics: mirror.Topics{Include: []string{topic}}})
	flowing(t, m, topic, parts, 30*time.Second)
	gaps := watch(t, m, topic, parts)
	wait(t, sized(8*time.Second, time.Minute))
	for p, gap := range gaps() {
		if gap > 5*time.Second { // of which a busy machine takes its part
			t.Errorf("partition %d stood still for %v", p, gap)
		}
	}
	stop()
	caughtUp(t, 30*time.Second, src, dst, topic)
	for _, p := range m.Status().Worst {
		if p.Attempts > 0 || p.Reason != "" {
			t.Errorf("%v: %d attempts, %s", p.Partition, p.Attempts, p.Reason)
		}
	}
	equalBetween(t, source, destination, topic, parts)
}
