package kafkatest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout is generous: machines that run such tests are often busy.
	startTimeout = 180 * time.Second
	// stopTimeout is for an orderly shutdown, which hands over leadership.
	stopTimeout = 60 * time.Second
)

// Cluster is a running Kafka cluster as seen by one test. Nodes are numbered
// from 1; the number is the broker id. Faults report their failures to that
// test. Safe for concurrent use, except for two faults at once on one node.
type Cluster struct {
	*core
	t testing.TB
}

// core is what the tests that share a cluster have in common.
type core struct {
	options   Options
	release   release
	java      string
	libs      string // folder with the jars
	dir       string // everything the cluster writes
	id        string
	nodes     []*node    // by id - 1
	zookeeper *zookeeper // nil where the nodes are controllers themselves
	authority *authority // nil without TLS
}

// newCore lays out a cluster in dir without starting anything.
func newCore(o Options, java, libs, dir string) (*core, error) {
	c := &core{options: o, release: releases[o.Version], java: java, libs: libs, dir: dir}
	c.id = newID()
	ports, err := freePorts(3*o.Nodes + 1)
	if err != nil {
		return nil, err
	}
	for i := range o.Nodes {
		c.nodes = append(c.nodes, &node{
			core:           c,
			runs:           program{c.release, libs},
			id:             i + 1,
			dir:            filepath.Join(dir, "node-"+strconv.Itoa(i+1)),
			clientPort:     ports[3*i],
			internalPort:   ports[3*i+1],
			controllerPort: ports[3*i+2],
		})
	}
	if c.release.zookeeper {
		c.zookeeper = &zookeeper{core: c, dir: filepath.Join(dir, "zookeeper"), port: ports[3*o.Nodes]}
	}
	if o.TLS {
		if c.authority, err = newAuthority(); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(c.authority.caPEM), 0o644); err != nil {
			return nil, err
		}
	}
	log := []byte(c.release.logConfig)
	if err := os.WriteFile(filepath.Join(dir, c.release.logFile), log, 0o644); err != nil {
		return nil, err
	}
	return c, os.WriteFile(filepath.Join(dir, "client.properties"), c.clientProperties().bytes(), 0o600)
}

// Bootstrap returns the client address of every node, running or not.
func (c *core) Bootstrap() []string {
	addrs := make([]string, 0, len(c.nodes))
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr())
	}
	return addrs
}

// ClusterID returns Kafka's id of the cluster.
func (c *core) ClusterID() string { return c.id }

// Version returns the Kafka release that the cluster was started with.
func (c *core) Version() string { return c.options.Version }

// Options returns the options with all defaults filled in.
func (c *core) Options() Options { return c.options }

// Nodes returns how many nodes the cluster has, running or not.
func (c *core) Nodes() int { return len(c.nodes) }

// TLSConfig returns a client configuration that trusts the cluster, nil
// without TLS. The caller owns it.
func (c *core) TLSConfig() *tls.Config {
	if c.authority == nil {
		return nil
	}
	return c.authority.clientConfig()
}

// Authority returns the certificate of the cluster's own authority, as PEM. It takes a
// cluster with TLS.
func (c *core) Authority() string { return c.authority.caPEM + "\n" }

// Certificate returns one for this machine that the cluster's authority has signed,
// with a name (CN) of its own. It takes a cluster with TLS.
func (c *core) Certificate(name string) (tls.Certificate, error) {
	der, key, err := c.authority.issue(name)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// CPUSeconds returns the processor time that all brokers have used since the
// cluster started, killed and restarted ones included. Zero where there is no
// /proc.
func (c *core) CPUSeconds() float64 {
	var sum time.Duration
	for _, n := range c.nodes {
		sum += n.cpu()
	}
	return sum.Seconds()
}

// close kills all processes.
func (c *core) close() {
	for _, n := range c.nodes {
		n.kill()
	}
	if c.zookeeper != nil {
		c.zookeeper.kill()
	}
}

func (c *core) node(id int) (*node, error) {
	if id < 1 || id > len(c.nodes) {
		return nil, fmt.Errorf("kafkatest: no node %d, nodes are 1 to %d", id, len(c.nodes))
	}
	return c.nodes[id-1], nil
}

// on runs one fault and reports its failure. It never stops the test at once,
// so faults may come from any goroutine of it.
func (c *Cluster) on(id int, fault func(*node) error) {
	c.t.Helper()
	n, err := c.node(id)
	if err == nil {
		err = fault(n)
	}
	if err != nil {
		c.t.Error(err)
	}
}

// Addr returns the client address of a node, "127.0.0.1:port"; it stays the
// same over restarts.
func (c *Cluster) Addr(id int) string {
	c.t.Helper()
	var addr string
	c.on(id, func(n *node) error { addr = n.addr(); return nil })
	return addr
}

// LogDir returns the folder with the partitions of a node.
func (c *Cluster) LogDir(id int) string {
	c.t.Helper()
	var dir string
	c.on(id, func(n *node) error { dir = n.logDir(); return nil })
	return dir
}

// Kill ends a node with SIGKILL and returns when the process is gone. The
// cluster notices after broker.session.timeout.ms (9 s by default).
func (c *Cluster) Kill(id int) {
	c.t.Helper()
	c.on(id, func(n *node) error { n.kill(); return nil })
}

// Stop shuts a node down in order with SIGTERM and returns when it has ended.
func (c *Cluster) Stop(id int) {
	c.t.Helper()
	c.on(id, (*node).stop)
}

// Restart starts a node again on its data and addresses, shutting it down in
// order first if it runs, and returns when it answers clients and knows all
// running nodes. After a Kill that takes until the old session has ended.
func (c *Cluster) Restart(id int) {
	c.t.Helper()
	c.on(id, func(n *node) error { return c.restart(n) })
}

func (c *core) restart(n *node) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if n.running() {
		if err := n.stop(); err != nil {
			return err
		}
	}
	if c.zookeeper != nil {
		if err := c.zookeeper.forgotten(ctx, n.id); err != nil {
			return err
		}
	}
	if err := n.start(); err != nil {
		return err
	}
	return c.ready(ctx, n)
}

// Upgrade is [Cluster.Restart] with the jars of another release, on the same data,
// settings and addresses. What the cluster may use of it then says
// kafka-features. The consumers and tools of the cluster stay what they were. Not for
// ZooKeeper, nor for a cluster that others share.
func (c *Cluster) Upgrade(id int, version string) {
	c.t.Helper()
	c.on(id, func(n *node) error {
		if c.zookeeper != nil || releases[version].zookeeper {
			return fmt.Errorf("kafkatest: upgrade of node %d from %s to %s: ZooKeeper", id, c.Version(), version)
		}
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		r, libs, err := c.programs(ctx, version)
		if err == nil {
			err = archive(ctx, version, c.java, libs)
		}
		if err != nil {
			return err
		}
		n.become(program{r, libs})
		return c.restart(n)
	})
}

// Pause freezes a node with SIGSTOP: its connections stay open and silent.
func (c *Cluster) Pause(id int) {
	c.t.Helper()
	c.on(id, func(n *node) error { return n.signal(syscall.SIGSTOP) })
}

// Continue undoes [Cluster.Pause].
func (c *Cluster) Continue(id int) {
	c.t.Helper()
	c.on(id, func(n *node) error { return n.signal(syscall.SIGCONT) })
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
