package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// format writes the configurations of all nodes and prepares their log directories,
// which brokers of a ZooKeeper do by themselves. Kafka's tool does it for the first
// node; the others' differ from that in two ids.
func (c *core) format(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.conf(), n.serverProperties(n).bytes(), 0o600); err != nil {
			return err
		}
	}
	if c.zookeeper != nil {
		return nil
	}
	first := c.nodes[0]
	if err := first.runTool(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes[1:] {
		if err := n.formatLike(first); err != nil {
			return fmt.Errorf("kafkatest: formatting node %d: %w", n.id, err)
		}
	}
	return nil
}

func (n *node) runTool(ctx context.Context) error {
	args := []string{"format", "-t", n.core.id, "-c", n.conf()}
	if o := n.options; o.SASL != "" && o.SASL != "PLAIN" {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", o.SASL, o.User, o.Password))
	}
	cmd := n.class(filepath.Join(n.dir, "format.log"), nil, "kafka.tools.StorageTool", args...)
	if out, err := output(ctx, cmd); err != nil {
		return fmt.Errorf("kafkatest: formatting node %d: %w\n%s", n.id, err, out)
	}
	return nil
}

var ownIDs = regexp.MustCompile(`(?m)^(node|directory)\.id=.*$`)

// formatLike copies a formatted log directory, with ids of its own.
func (n *node) formatLike(first *node) error {
	if err := os.CopyFS(n.logDir(), os.DirFS(first.logDir())); err != nil {
		return err
	}
	file := filepath.Join(n.logDir(), "meta.properties")
	meta, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	directory := newID()
	meta = ownIDs.ReplaceAllFunc(meta, func(line []byte) []byte {
		if line[0] == 'n' {
			return fmt.Appendf(nil, "node.id=%d", n.id)
		}
		return append([]byte("directory.id="), directory...)
	})
	return os.WriteFile(file, meta, 0o644)
}

// newID is one as Kafka makes them: 16 bytes, in letters.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] = 'k'             // an id must not begin with '-'
	return base64.RawURLEncoding.EncodeToString(id[:])
}
