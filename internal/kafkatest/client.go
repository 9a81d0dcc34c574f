package kafkatest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// ClientOpts returns what a franz-go client needs to reach the cluster.
func (c *core) ClientOpts() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap()...)}
	if tls := c.TLSConfig(); tls != nil {
		opts = append(opts, kgo.DialTLSConfig(tls))
	}
	o := c.options
	login := scram.Auth{User: o.User, Pass: o.Password}
	switch o.SASL {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: o.User, Pass: o.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(login.AsSha512Mechanism()))
	}
	return opts
}

// Client returns a franz-go client that is closed with the test.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ClientOpts(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}
