// Command clients reads with a consumer of somebody else and prints what an
// application would get from it, one record a line: partitions up to an offset, or,
// with -group, a topic as a member of a group until SIGTERM. It is a module of its own,
// for tests only: none of these clients becomes a dependency of the library by it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// record is a record as its client hands it out. Bytes are as Kafka's
// Bytes.toString writes them.
type record struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"` // milliseconds
	Key       string `json:"key"`
	Value     string `json:"value"`
	Headers   string `json:"headers"`
}

// order is what is to be read: a partition from its log start on, committed records
// only, until a record at last or behind it was seen.
type order struct {
	brokers   []string
	topic     string
	partition int32
	last      int64
}

// family reads and shows each record until show says that it was the last one.
type family func(ctx context.Context, o order, show func(record) (more bool)) error

var families = map[string]family{"sarama": sarama, "kafka-go": segmentio, "franz-go": franz}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("family", "", "sarama, kafka-go or franz-go")
	brokers := flag.String("brokers", "", "addresses, with commas between them")
	wants := flag.String("read", "", "what to read: topic/partition/last offset, with commas between them")
	patience := flag.Duration("patience", 20*time.Second, "how long a partition may take to be read")
	group := flag.String("group", "", "read as a member of this group")
	topic := flag.String("topic", "", "what the group reads")
	flag.Parse()
	if *group != "" {
		return join(*name, membership{strings.Split(*brokers, ","), *group, *topic})
	}
	read := families[*name]
	if read == nil {
		return fmt.Errorf("no family %q", *name)
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, want := range strings.Split(*wants, ",") {
		o, err := parse(want)
		if err != nil {
			return err
		}
		o.brokers = strings.Split(*brokers, ",")
		if err := follow(read, o, *patience, func(r record) error { return lines.Encode(r) }); err != nil {
			return errors.Join(out.Flush(), fmt.Errorf("%s: %s-%d: %w", *name, o.topic, o.partition, err))
		}
	}
	return out.Flush()
}

// join reads as a member of a group, and prints each record at once.
func join(name string, in membership) error {
	read := members[name]
	if read == nil {
		return fmt.Errorf("no family %q with groups", name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	lines := json.NewEncoder(os.Stdout)
	lines.SetEscapeHTML(false)
	return read(ctx, in, func(r record) error { return lines.Encode(r) })
}

func parse(want string) (o order, err error) {
	f := strings.Split(want, "/")
	if len(f) != 3 {
		return o, fmt.Errorf("%q is not topic/partition/last offset", want)
	}
	o.topic = f[0]
	_, err = fmt.Sscan(f[1]+" "+f[2], &o.partition, &o.last)
	return o, err
}

// follow reads one partition. One that does not come to its last record in time is an
// error that says where it stood.
func follow(read family, o order, patience time.Duration, put func(record) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	at, bad := int64(-1), error(nil)
	err := read(ctx, o, func(r record) bool {
		at, r.Partition = r.Offset, o.partition
		bad = put(r)
		return bad == nil && at < o.last
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("stands at offset %d of %d: %w", at, o.last, err)
	}
	return nil
}

// text renders a key or a value.
func text(b []byte) string {
	if b == nil {
		return "(null)"
	}
	var s strings.Builder
	for _, c := range b {
		if c >= ' ' && c <= '~' && c != '\\' {
			s.WriteByte(c)
		} else {
			fmt.Fprintf(&s, "\\x%02X", c)
		}
	}
	return s.String()
}

// headers are written name:value,name:value.
type headers []string

func (h *headers) add(name string, value []byte) { *h = append(*h, name+":"+text(value)) }

func (h headers) String() string { return strings.Join(h, ",") }
