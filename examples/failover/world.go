package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
)

const topic = "orders"

var orders = cluster.Partition{Topic: topic, Partition: 0}

// world is two clusters, and the controller of the mirrors between them. Its methods
// do nothing once err is set.
type world struct {
	*mirror.Controller
	ctx            context.Context
	out            io.Writer
	berlin, madrid *memory.Cluster
	salvage        string // where the tails of cut logs go
	steps          int
	err            error
}

// open leads the controller to a mirror's clusters. With Kafka it would make a client
// from the addresses in the definition.
func (w *world) open(_ context.Context, d coordinator.Definition) (mirror.Source, mirror.Destination, error) {
	at := map[string]*memory.Cluster{"berlin": w.berlin, "madrid": w.madrid}
	return at[d.Source["cluster"]].Client(d.Name), at[d.Destination["cluster"]].Client(d.Name), nil
}

// check keeps the first error.
func (w *world) check(err error) { w.err = cmp.Or(w.err, err) }

func (w *world) step(what string) {
	if w.steps++; w.err == nil {
		fmt.Fprintf(w.out, "\n%d. %s\n", w.steps, what)
	}
}

func (w *world) say(format string, args ...any) {
	if w.err == nil {
		fmt.Fprintf(w.out, "   "+format+"\n", args...)
	}
}

// unreachable loses every request to a cluster.
func unreachable(memory.Op) memory.Fault {
	return memory.Fault{Kind: memory.LoseRequest, Err: cluster.ErrUnreachable}
}

// notices waits until a mirror shows why it copies nothing.
func (w *world) notices(name string) {
	for w.err == nil {
		d, err := w.Describe(w.ctx, name)
		w.check(cmp.Or(err, w.ctx.Err()))
		if worst := d.Status.Worst; len(worst) > 0 && worst[0].Reason != "" {
			w.say("%s says: %s", name, worst[0].Reason)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) create(c *memory.Cluster) {
	w.check(c.CreateTopic(cluster.NewTopic{Name: topic, Partitions: 1}))
}

func (w *world) write(c *memory.Cluster, what string, n int) {
	for i := 0; i < n && w.err == nil; i++ {
		_, err := c.Produce(orders, memory.Values(fmt.Sprintf("%s %d", what, i))...)
		w.check(err)
	}
	w.say("%d orders written", n)
}

// refuses proves that a mirror topic is read-only.
func (w *world) refuses(c *memory.Cluster) {
	if _, err := c.Produce(orders, memory.Values("too early")...); !errors.Is(err, memory.ErrReadOnly) {
		w.check(fmt.Errorf("a mirror topic took a record: %v", err))
	}
}

func (w *world) mirror(name, from, to string) {
	if w.err == nil {
		_, err := w.Create(w.ctx, coordinator.Definition{
			Name: name, Include: []string{topic},
			Source: map[string]string{"cluster": from}, Destination: map[string]string{"cluster": to},
		})
		w.check(err)
	}
}

// equal waits until the destination has all that the source has, and compares both
// logs record by record.
func (w *world) equal(name string, source, destination *memory.Cluster) {
	if w.err != nil {
		return
	}
	ends, err := source.Offsets(w.ctx, []cluster.Partition{orders})
	if err == nil {
		err = w.WaitMirrored(w.ctx, name, orders, ends[0].HighWatermark-1)
	}
	w.check(err)
	reports, err := verify.Topics(w.ctx, source, destination, []cluster.Partition{orders}, nil)
	w.check(err)
	if w.err == nil && !(reports[0].Equal && reports[0].EndsEqual) {
		w.check(fmt.Errorf("the clusters differ: %v", reports[0]))
	}
	if w.err == nil {
		w.say("%d records compared: both logs are equal", reports[0].Records)
	}
}

// copied proves how many records a mirror has copied since it runs.
func (w *world) copied(name string, want int64) {
	if w.err != nil {
		return
	}
	d, err := w.Describe(w.ctx, name)
	w.check(err)
	if got := d.Status.Records; got != want {
		w.check(fmt.Errorf("mirror %s has copied %d records, want %d", name, got, want))
	}
	w.say("%s has copied %d records", name, want)
}

// salvaged proves that what was cut has been kept.
func (w *world) salvaged(name string, from int64, values ...string) {
	if w.err != nil {
		return
	}
	tail, err := os.ReadFile(filepath.Join(w.salvage, name, orders.String(), fmt.Sprintf("%020d.log", from)))
	w.check(err)
	for _, v := range values {
		if !bytes.Contains(tail, []byte(v)) {
			w.check(fmt.Errorf("%q is not in the salvaged tail", v))
		}
	}
	w.say("the %d records that were cut are kept in a file", len(values))
}
