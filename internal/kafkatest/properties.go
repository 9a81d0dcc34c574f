package kafkatest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// properties is a Java properties file.
type properties map[string]string

var escapeProperty = strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\r", "\\r")

func (p properties) bytes() []byte {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, escapeProperty.Replace(p[k]))
	}
	return []byte(b.String())
}

// serverProperties is the configuration of one node: small internal topics, no
// waiting for group members.
func (c *core) serverProperties(n *node) properties {
	replicas := strconv.Itoa(min(3, len(c.nodes)))
	isr := strconv.Itoa(min(2, len(c.nodes)))
	p := properties{
		"inter.broker.listener.name":     "INTERNAL",
		"listeners":                      fmt.Sprintf("CLIENT://127.0.0.1:%d,INTERNAL://127.0.0.1:%d", n.clientPort, n.internalPort),
		"advertised.listeners":           fmt.Sprintf("CLIENT://127.0.0.1:%d,INTERNAL://127.0.0.1:%d", n.clientPort, n.internalPort),
		"listener.security.protocol.map": "CLIENT:" + c.options.protocol() + ",INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       n.logDir(),

		// Tests like fixed timestamps, of any year: no topic deletes by age
		// unless it says so itself.
		"log.retention.ms": "-1",

		"num.network.threads":                      "2",
		"num.io.threads":                           "4",
		"auto.create.topics.enable":                "false",
		"group.initial.rebalance.delay.ms":         "0",
		"offsets.topic.num.partitions":             "4",
		"offsets.topic.replication.factor":         replicas,
		"transaction.state.log.num.partitions":     "4",
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            isr,

		// Of share groups; older releases do not know them.
		"share.coordinator.state.topic.num.partitions":     "4",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            isr,
	}
	maps.Copy(p, c.saslProperties())
	if c.authority != nil {
		maps.Copy(p, c.authority.serverProperties())
	}
	if c.zookeeper != nil {
		maps.Copy(p, c.zookeeper.brokerProperties(n))
	} else {
		maps.Copy(p, c.controllerProperties(n))
	}
	if c.options.Mutual {
		maps.Copy(p, c.authority.mutualProperties(c.options))
	}
	maps.Copy(p, c.options.Config)
	if len(c.options.Racks) > 0 {
		p["broker.rack"] = c.options.Racks[n.id-1]
	}
	return p
}

// controllerProperties make a node broker and controller in one process.
func (c *core) controllerProperties(n *node) properties {
	voters := make([]string, 0, len(c.nodes))
	for _, m := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", m.id, m.controllerPort))
	}
	return properties{
		"process.roles":             "broker,controller",
		"node.id":                   strconv.Itoa(n.id),
		"controller.quorum.voters":  strings.Join(voters, ","),
		"controller.listener.names": "CONTROLLER",
		"listeners":                 fmt.Sprintf("CLIENT://127.0.0.1:%d,INTERNAL://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", n.clientPort, n.internalPort, n.controllerPort),

		// Well below any session timeout that a test may choose: with the default
		// of 2 s a timeout of 2 s fences brokers that are alive.
		"broker.heartbeat.interval.ms": "500",

		// Controllers write an empty record so often. At each, a node at rest does
		// most of what it does.
		"metadata.max.idle.interval.ms": "5000",
	}
}

func (c *core) saslProperties() properties {
	o := c.options
	if o.SASL == "" {
		return nil
	}
	prefix := "listener.name.client." + strings.ToLower(o.SASL) + ".sasl.jaas.config"
	login := fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", o.User, o.Password)
	if o.SASL != "PLAIN" {
		login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	}
	return properties{
		"listener.name.client.sasl.enabled.mechanisms": o.SASL,
		prefix: login,
	}
}

// clientProperties is the configuration of a Java client of the cluster.
func (c *core) clientProperties() properties {
	o := c.options
	p := properties{"security.protocol": o.protocol()}
	if o.SASL != "" {
		module := "org.apache.kafka.common.security.scram.ScramLoginModule"
		if o.SASL == "PLAIN" {
			module = "org.apache.kafka.common.security.plain.PlainLoginModule"
		}
		p["sasl.mechanism"] = o.SASL
		p["sasl.jaas.config"] = fmt.Sprintf("%s required username=%q password=%q;", module, o.User, o.Password)
	}
	if c.authority != nil {
		p["ssl.truststore.type"] = "PEM"
		p["ssl.truststore.certificates"] = c.authority.caPEM
	}
	return p
}
