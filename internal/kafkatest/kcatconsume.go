package kafkatest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// kcatFormat gives the lengths first, so that keys and values may hold
// anything and null (-1) differs from empty (0).
const (
	kcatEnd    = "\n=kafkatest=\n"
	kcatFormat = "%p %o %T %K %S\n%k%s%h" + kcatEnd
)

// KcatConsume reads with kcat (librdkafka), which also checks the CRC of every
// batch, and returns the lines by partition and offset. Without kcat the test
// is skipped, or fails if KAFKATEST_REQUIRED is set.
func (c *Cluster) KcatConsume(ctx context.Context, t testing.TB, s ConsumeSpec) []Line {
	t.Helper()
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(kcat(t), c.kcatArgs(s)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	p, err := startProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	err = p.wait(ctx)
	p.kill()
	if err != nil {
		t.Fatalf("kcat of topic %s: %v\n%s", s.Topic, err, stderr.Bytes())
	}
	lines, err := parseKcat(stdout.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	sortLines(lines)
	return lines
}

// kcatAccess is where and how kcat connects. librdkafka before 2.2 repeats the
// client's nonce in SCRAM, which brokers refuse since 3.9 (CVE-2024-56128); so
// with SCRAM kcat reads from the brokers' own listener.
func (c *core) kcatAccess() []string {
	o := c.options
	if strings.HasPrefix(o.SASL, "SCRAM-") {
		var addrs []string
		for _, n := range c.nodes {
			addrs = append(addrs, localAddr(n.internalPort))
		}
		return []string{"-b", strings.Join(addrs, ",")}
	}
	args := []string{"-b", strings.Join(c.Bootstrap(), ","), "-X", "security.protocol=" + o.protocol()}
	if o.SASL != "" {
		args = append(args, "-X", "sasl.mechanisms="+o.SASL,
			"-X", "sasl.username="+o.User, "-X", "sasl.password="+o.Password)
	}
	if c.authority != nil {
		args = append(args, "-X", "ssl.ca.location="+filepath.Join(c.dir, "ca.pem"))
	}
	return args
}

func (c *core) kcatArgs(s ConsumeSpec) []string {
	args := append(c.kcatAccess(), "-C", "-q", "-e", "-m", "30", "-t", s.Topic, "-f", kcatFormat,
		"-X", "check.crcs=true", "-X", "isolation.level="+s.isolation(), "-X", "fetch.wait.max.ms=20")
	if s.Max > 0 {
		args = append(args, "-c", strconv.Itoa(s.Max))
	}
	if s.Partition == AllPartitions {
		return append(args, "-o", "beginning")
	}
	return append(args, "-p", strconv.Itoa(int(s.Partition)), "-o", strconv.FormatInt(s.From, 10))
}

func parseKcat(out []byte) ([]Line, error) {
	var lines []Line
	for len(out) > 0 {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		var l Line
		var keySize, valueSize int
		if _, err := fmt.Sscan(string(head), &l.Partition, &l.Offset, &l.Time, &keySize, &valueSize); err != nil {
			return nil, fmt.Errorf("line of kcat %q: %w", head, err)
		}
		var err error
		if l.Key, rest, err = takeKcat(rest, keySize); err != nil {
			return nil, err
		}
		if l.Value, rest, err = takeKcat(rest, valueSize); err != nil {
			return nil, err
		}
		headers, rest, found := bytes.Cut(rest, []byte(kcatEnd))
		if !found {
			return nil, fmt.Errorf("record %d/%d of kcat has no end", l.Partition, l.Offset)
		}
		l.Headers = escape(headers)
		lines, out = append(lines, l), rest
	}
	return lines, nil
}

// takeKcat takes a key or value: kcat gives null the length -1 and prints
// nothing. (With -Z it would print NULL for empty ones, too.)
func takeKcat(b []byte, size int) (string, []byte, error) {
	if size < 0 {
		return Null, b, nil
	}
	if size > len(b) {
		return "", nil, fmt.Errorf("kcat gives length %d for %d bytes", size, len(b))
	}
	return escape(b[:size]), b[size:], nil
}
