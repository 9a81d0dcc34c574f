package kafkatest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// javaIdleMillis ends a read whose last offsets are never shown (markers,
// gaps). It also covers the consumer's own start, hence not shorter.
const javaIdleMillis = 15_000

// JavaConsume reads with the console consumer of the cluster's own release (2.1.1,
// whose own shows no offsets: with that of [DefaultVersion]) and
// returns the lines by partition and offset. It takes about 3 s plus the time
// of the records, and 15 s more where the last offsets of a partition hold
// nothing to show. The read must end before ctx.
func (c *Cluster) JavaConsume(ctx context.Context, t testing.TB, s ConsumeSpec) []Line {
	t.Helper()
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	p := newProgress(c.Starts(ctx, t, s.Topic), c.Ends(ctx, t, s.Topic), s)
	if p.left == 0 {
		return nil
	}
	lines, err := c.javaConsume(ctx, s, p)
	if err != nil {
		t.Fatalf("java consumer of topic %s: %v", s.Topic, err)
	}
	sortLines(lines)
	return lines
}

func (c *core) javaArgs(r release, s ConsumeSpec) []string {
	const bytesClass = "org.apache.kafka.common.serialization.BytesDeserializer"
	args := []string{
		"--bootstrap-server", strings.Join(c.Bootstrap(), ","),
		"--topic", s.Topic,
		"--isolation-level", s.isolation(),
		r.consumerConfigFlag, filepath.Join(c.dir, "client.properties"),
	}
	if s.Max > 0 {
		args = append(args, "--max-messages", strconv.Itoa(s.Max))
	}
	if s.Partition == AllPartitions {
		args = append(args, "--from-beginning")
	} else {
		args = append(args, "--partition", strconv.Itoa(int(s.Partition)), "--offset", strconv.FormatInt(s.From, 10))
	}
	for _, p := range []string{
		"print.timestamp=true", "print.partition=true", "print.offset=true",
		"print.headers=true", "print.key=true", "print.value=true", "null.literal=" + Null,
		"key.deserializer=" + bytesClass, "value.deserializer=" + bytesClass, "headers.deserializer=" + bytesClass,
	} {
		args = append(args, r.formatterFlag, p)
	}
	return args
}

// reader is the release whose console consumer is used, and the folder of its jars.
func (c *core) reader(ctx context.Context) (release, string, error) {
	return c.programs(ctx, cmp.Or(c.release.reader, c.options.Version))
}

func (c *core) javaConsume(ctx context.Context, s ConsumeSpec, p *progress) ([]Line, error) {
	reader, libs, err := c.reader(ctx)
	if err != nil {
		return nil, err
	}
	cmd := c.classOf(reader, libs, filepath.Join(c.dir, "consumer.log"), []string{"-Xmx256m"},
		reader.consumer, append(c.javaArgs(reader, s), "--timeout-ms", strconv.Itoa(javaIdleMillis))...)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	proc, err := startProcess(cmd)
	w.Close() // the process has its own
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = proc.cmd.Process.Kill() })()
	lines, complete, err := readJava(r, s, p)
	proc.kill()
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, fmt.Errorf("after %d records: %w", len(lines), context.Cause(ctx))
	case !complete && !bytes.Contains(stderr.Bytes(), []byte("Processed a total of")):
		return nil, fmt.Errorf("ended after %d records: %v\n%s", len(lines), proc.err, stderr.Bytes())
	}
	return lines, nil
}

// readJava reads until the output ends or, earlier, nothing more is wanted.
func readJava(r io.Reader, s ConsumeSpec, p *progress) (lines []Line, complete bool, err error) {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return lines, false, nil // the process has ended
		}
		l, err := parseJava(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return nil, false, err
		}
		lines = append(lines, l)
		if p.see(l.Partition, l.Offset) || len(lines) == s.Max {
			return lines, true, nil
		}
	}
}

// parseJava reads "CreateTime:N\tPartition:N\tOffset:N\theaders\tkey\tvalue".
// Only names of headers can hold a tab, so the headers are what is left over.
func parseJava(text string) (Line, error) {
	var l Line
	f := strings.Split(text, "\t")
	if len(f) < 6 {
		return l, fmt.Errorf("not a line of the console consumer: %q", text)
	}
	partition, err := strconv.ParseInt(strings.TrimPrefix(f[1], "Partition:"), 10, 32)
	if err != nil {
		return l, fmt.Errorf("line of the console consumer %q: %w", text, err)
	}
	offset, err := strconv.ParseInt(strings.TrimPrefix(f[2], "Offset:"), 10, 64)
	if err != nil {
		return l, fmt.Errorf("line of the console consumer %q: %w", text, err)
	}
	last := len(f) - 1
	headers := strings.Join(f[3:last-1], "\t")
	if headers == "NO_HEADERS" {
		headers = ""
	}
	return Line{Partition: int32(partition), Offset: offset, Time: f[0], Headers: headers, Key: f[last-1], Value: f[last]}, nil
}
