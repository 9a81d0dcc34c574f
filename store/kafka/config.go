package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

const (
	// DefaultTopic is where the state is kept unless Config.Topic says otherwise.
	DefaultTopic = "__cluster_mirror_state"

	defaultPartitions = 50
	maxReplicas       = 3 // of a topic that nobody gave a replication factor
)

// Config says how to reach the cluster that holds the state, and which topic it
// stands in. The zero value of every field but Bootstrap is usable.
type Config struct {
	// Bootstrap are addresses, host:port, to ask for the cluster's brokers.
	Bootstrap []string
	// TLS is used on every connection. The server name is filled in from the
	// address where it is empty. Default: nil, plain TCP.
	TLS *tls.Config
	// SASL logs in on every connection. Default: nil, no login.
	SASL sasl.Mechanism
	// ClientID is the name brokers see in quotas and logs. Default: "mirror".
	ClientID string
	// Dial opens TCP connections. Default: net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout bounds TCP, TLS and login together. Default: 10 s.
	DialTimeout time.Duration
	// RequestTimeout bounds one request, and one call of a method of Store as far
	// as it waits for the cluster to become able to answer. Default: 30 s.
	RequestTimeout time.Duration
	// Topic holds the state. Default: DefaultTopic.
	Topic string
	// Partitions is the number of partitions the topic is created with; a topic that
	// exists keeps its own. Default: 50.
	Partitions int32
	// ReplicationFactor is what the topic is created with. Default: 3, or as many
	// brokers as there are if fewer.
	ReplicationFactor int16
	// Logger gets reports of what was retried or left out. Default: silent.
	Logger *slog.Logger
}

// legalTopic is what Kafka takes as a topic's name
// (org.apache.kafka.common.internals.Topic).
var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// Validate reports every bad field at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Bootstrap) == 0 {
		bad("Bootstrap: at least one host:port is needed")
	}
	for i, address := range c.Bootstrap {
		if err := checkAddress(address); err != nil {
			bad("Bootstrap[%d] %q: %w", i, address, err)
		}
	}
	if c.DialTimeout < 0 {
		bad("DialTimeout: %v is negative", c.DialTimeout)
	}
	if c.RequestTimeout < 0 {
		bad("RequestTimeout: %v is negative", c.RequestTimeout)
	}
	if c.Topic != "" && (!legalTopic.MatchString(c.Topic) || c.Topic == "." || c.Topic == "..") {
		bad("Topic: %q is not a legal topic name", c.Topic)
	}
	if c.Partitions < 0 {
		bad("Partitions: %d is negative", c.Partitions)
	}
	if c.ReplicationFactor < 0 {
		bad("ReplicationFactor: %d is negative", c.ReplicationFactor)
	}
	return errors.Join(errs...)
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("want host:port")
	}
	if host == "" {
		return errors.New("host is empty")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Bootstrap = slices.Clone(c.Bootstrap)
	c.ClientID = cmp.Or(c.ClientID, "mirror")
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 30*time.Second)
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	c.Partitions = cmp.Or(c.Partitions, defaultPartitions)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
