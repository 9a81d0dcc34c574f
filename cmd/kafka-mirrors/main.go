// Kafka-mirrors is the operator's tool: it mirrors the topics of one Kafka
// cluster to another with identical offsets, and proves that the copies are equal.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx := interruptible(context.Background(), signals, func() { os.Exit(exitInterrupted) })
	os.Exit(execute(ctx, os.Args[1:], streams{
		out: os.Stdout, err: os.Stderr, width: widthOf(os.Stdout, os.Getenv("TERM")),
	}))
}

// streams are where a command writes.
type streams struct {
	out, err io.Writer
	// width is the number of columns of the terminal that out is; 0 when it is none,
	// or one that cannot move its cursor.
	width func() int
}

// interruptible gives a context that the first signal ends; the second calls
// again.
func interruptible(parent context.Context, signals <-chan os.Signal, again func()) context.Context {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		defer cancel()
		select {
		case <-parent.Done():
			return
		case <-signals:
		}
		cancel()
		select {
		case <-parent.Done():
		case <-signals:
			again()
		}
	}()
	return ctx
}

func widthOf(f *os.File, kind string) func() int {
	return func() int {
		if kind == "dumb" || !term.IsTerminal(int(f.Fd())) {
			return 0
		}
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}
}
