// Failover loses a data centre and takes it back: a failover with records that nobody
// had copied, a failback that copies nothing but what is new, and a planned switch
// home. After each, both logs are compared record by record.
//
// Both clusters are in memory, so nothing has to be installed. It exits with 0 only if
// everything was proven.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	salvage, err := os.MkdirTemp("", "salvage")
	if err != nil {
		return err
	}
	defer os.RemoveAll(salvage)
	w := &world{
		ctx: ctx, out: out, salvage: salvage,
		berlin: memory.New(memory.Options{ID: "berlin"}), madrid: memory.New(memory.Options{ID: "madrid"}),
	}
	w.Controller, err = mirror.NewController(coordinator.NewMemory(), w.open, &mirror.ControllerOptions{
		Mirrors: mirror.Options{Salvage: mirror.SalvageTo(salvage), SyncInterval: time.Second},
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- w.Run(running) }()
	w.story()
	end()
	if w.check(<-ran); w.err == nil {
		fmt.Fprintln(out, "\nproven")
	}
	return w.err
}

// story is what operators and producers do. After an error nothing more is done.
func (w *world) story() {
	w.step("Orders are written in berlin and mirrored to madrid.")
	w.create(w.berlin)
	w.write(w.berlin, "first", 1000)
	w.mirror("to-madrid", "berlin", "madrid")
	w.equal("to-madrid", w.berlin, w.madrid)

	w.step("Berlin is cut off. Three more orders are written there; nobody has copied them.")
	w.berlin.SetFault(unreachable)
	w.notices("to-madrid")
	w.write(w.berlin, "unseen", 3)

	w.step("Failover: madrid's topic becomes an ordinary one, though berlin does not answer.")
	w.refuses(w.madrid) // until now it is the mirror's alone
	_, err := w.Stop(w.ctx, "to-madrid", topic)
	w.check(err)
	w.write(w.madrid, "madrid", 200)

	w.step("Berlin is back. A mirror the other way cuts what madrid never had, and copies what is new.")
	w.berlin.SetFault(nil)
	w.mirror("to-berlin", "madrid", "berlin")
	w.equal("to-berlin", w.madrid, w.berlin)
	w.copied("to-berlin", 200)
	w.salvaged("to-berlin", 1000, "unseen 0", "unseen 1", "unseen 2")

	w.step("Planned switch home: promote waits until nothing is missing, then berlin is written to again.")
	w.write(w.madrid, "late", 50)
	_, err = w.Promote(w.ctx, "to-berlin", topic)
	w.check(err)
	w.write(w.berlin, "home", 10)
	_, err = w.Start(w.ctx, "to-madrid", topic)
	w.check(err)
	w.equal("to-madrid", w.berlin, w.madrid)
	w.copied("to-madrid", 1000+10) // since the start; none of berlin's or madrid's own twice
}
