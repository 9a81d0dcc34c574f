package kafkatest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Options describe a cluster. The zero value is one node of [DefaultVersion]
// without security.
type Options struct {
	// Version is a Kafka release out of [Versions]. Default: DefaultVersion.
	Version string
	// Nodes is the number of brokers. Each is a controller too; releases before 3
	// have one ZooKeeper beside them instead. Default: 1.
	Nodes int
	// Config is added to server.properties of every node and wins over what
	// stands there, which differs from Kafka's defaults in: no automatic
	// topics, log.retention.ms=-1, broker.heartbeat.interval.ms=500,
	// metadata.max.idle.interval.ms=5000,
	// group.initial.rebalance.delay.ms=0, small internal topics. With ZooKeeper
	// broker.session.timeout.ms stands for zookeeper.session.timeout.ms.
	// Default: none.
	Config map[string]string
	// Racks are where nodes stand (broker.rack), in their order. Default: as Config says.
	Racks []string
	// SASL is the mechanism of the client listener: "PLAIN",
	// "SCRAM-SHA-256" or "SCRAM-SHA-512" (not with ZooKeeper). Brokers talk to
	// each other on a listener without it. Default: no SASL.
	SASL string
	// User and Password are the one account of SASL.
	// Default: "mirror" and "mirror-secret".
	User, Password string
	// TLS encrypts the client listener, with a certificate for 127.0.0.1 and
	// localhost from the cluster's own authority ([Cluster.TLSConfig]). Kafka
	// reads such certificates since 2.7. Default: off.
	TLS bool
	// Mutual has brokers and controllers, on the listeners INTERNAL and CONTROLLER,
	// know each other by certificates (mTLS): the nodes' has the name localhost, and
	// [Cluster.Certificate] gives others. It implies TLS. Default: both are plain.
	Mutual bool
	// JVM is added to the command line of every node, after the flags that
	// make it small and quick to start. Default: none.
	JVM []string
}

func (o Options) withDefaults() (Options, error) {
	o.Version = cmp.Or(o.Version, DefaultVersion)
	o.Nodes = cmp.Or(o.Nodes, 1)
	o.Config = maps.Clone(o.Config)
	o.JVM, o.Racks = slices.Clone(o.JVM), slices.Clone(o.Racks)
	o.TLS = o.TLS || o.Mutual
	if o.SASL != "" {
		o.User = cmp.Or(o.User, "mirror")
		o.Password = cmp.Or(o.Password, "mirror-secret")
	}
	var errs []error
	r, ok := releases[o.Version]
	if !ok {
		errs = append(errs, fmt.Errorf("Version %q is not one of %v", o.Version, Versions()))
	}
	if len(o.Racks) > 0 && len(o.Racks) != o.Nodes {
		errs = append(errs, fmt.Errorf("%d Racks for %d Nodes", len(o.Racks), o.Nodes))
	}
	if o.Nodes < 0 {
		errs = append(errs, fmt.Errorf("Nodes is %d", o.Nodes))
	}
	if !slices.Contains([]string{"", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, o.SASL) {
		errs = append(errs, fmt.Errorf("SASL mechanism %q", o.SASL))
	}
	if r.zookeeper && strings.HasPrefix(o.SASL, "SCRAM") {
		errs = append(errs, fmt.Errorf("SASL mechanism %q with ZooKeeper", o.SASL))
	}
	if r.zookeeper && o.Mutual {
		errs = append(errs, errors.New("Mutual with ZooKeeper"))
	}
	if r.jksOnly && o.TLS {
		errs = append(errs, fmt.Errorf("TLS on %s, which reads no PEM files", o.Version))
	}
	return o, errors.Join(errs...)
}

// key tells distinct clusters apart, for sharing them.
func (o Options) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d %q %q %q %q %t %t %q", o.Version, o.Nodes, o.Racks, o.SASL, o.User, o.Password, o.TLS, o.Mutual, o.JVM)
	for _, k := range slices.Sorted(maps.Keys(o.Config)) {
		fmt.Fprintf(&b, " %q=%q", k, o.Config[k])
	}
	return b.String()
}

// protocol is Kafka's name for the security of the client listener.
func (o Options) protocol() string {
	switch {
	case o.SASL != "" && o.TLS:
		return "SASL_SSL"
	case o.SASL != "":
		return "SASL_PLAINTEXT"
	case o.TLS:
		return "SSL"
	}
	return "PLAINTEXT"
}
