package kafkatest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// zookeeper is the one that the brokers of an old release share.
type zookeeper struct {
	*core
	dir  string
	port int
	proc *process // nil before the start; started and killed once
}

// tickMillis is ZooKeeper's unit of time. Sessions last 2 to 20 of it.
const tickMillis = 500

func (z *zookeeper) start(ctx context.Context) error {
	if err := os.MkdirAll(z.dir, 0o755); err != nil {
		return err
	}
	conf := filepath.Join(z.dir, "zookeeper.properties")
	p := properties{
		"dataDir":            filepath.Join(z.dir, "data"),
		"clientPort":         strconv.Itoa(z.port),
		"clientPortAddress":  "127.0.0.1",
		"tickTime":           strconv.Itoa(tickMillis),
		"maxClientCnxns":     "0",
		"admin.enableServer": "false", // it wants a port of its own

		"4lw.commands.whitelist": "dump",
	}
	if err := os.WriteFile(conf, p.bytes(), 0o600); err != nil {
		return err
	}
	log := filepath.Join(z.dir, "server.log")
	out, err := os.OpenFile(filepath.Join(z.dir, "out.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() // the process has its own descriptor
	cmd := z.class(log, []string{"-Xmx128m"}, "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
	cmd.Dir, cmd.Stdout, cmd.Stderr = z.dir, out, out
	if z.proc, err = startProcess(cmd); err != nil {
		z.proc = nil
		return err
	}
	return z.until(ctx, "ZooKeeper does not answer", func(string) bool { return true })
}

func (z *zookeeper) kill() {
	if z.proc != nil {
		z.proc.kill()
	}
}

// forgotten waits until the session that a killed broker had is over: until then a
// broker with its number refuses to start.
func (z *zookeeper) forgotten(ctx context.Context, broker int) error {
	return z.until(ctx, fmt.Sprintf("ZooKeeper still knows broker %d", broker), func(dump string) bool {
		return !strings.Contains(dump, fmt.Sprintf("\t/brokers/ids/%d\n", broker))
	})
}

// until asks ZooKeeper for its sessions, and what each of them keeps alive, until
// the answer is good.
func (z *zookeeper) until(ctx context.Context, what string, good func(dump string) bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		dump, err := z.dump(ctx)
		if err == nil && good(dump) {
			return nil
		}
		select {
		case <-tick.C:
		case <-z.proc.done:
			logged, _ := os.ReadFile(filepath.Join(z.dir, "server.log")) // absent if nothing was logged
			return fmt.Errorf("kafkatest: ZooKeeper ended: %w\n%s", z.proc.err, logged)
		case <-ctx.Done():
			return fmt.Errorf("kafkatest: %s: %w (%v)", what, context.Cause(ctx), err)
		}
	}
}

func (z *zookeeper) dump(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", localAddr(z.port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, "dump"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// brokerProperties are what brokers with a ZooKeeper have instead of a quorum.
func (z *zookeeper) brokerProperties(n *node) properties {
	session, ok := z.options.Config["broker.session.timeout.ms"]
	if !ok {
		session = "6000"
	}
	return properties{
		"broker.id":                       strconv.Itoa(n.id),
		"zookeeper.connect":               localAddr(z.port),
		"zookeeper.session.timeout.ms":    session,
		"zookeeper.connection.timeout.ms": "60000",
	}
}

// learnID asks for the cluster's id, which the first broker has made up.
func (c *core) learnID(ctx context.Context) error {
	cl, err := kgo.NewClient(c.ClientOpts()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	m, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("kafkatest: the cluster's id: %w", err)
	}
	if m.ClusterID == nil {
		return fmt.Errorf("kafkatest: the cluster has no id")
	}
	c.id = *m.ClusterID
	return nil
}
