package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cmd/kafka-mirrors/internal/statuspage"
)

// boardFlags say whether and where the status is served.
type boardFlags struct{ listen string }

// boardHelp is the part of the help about it.
const boardHelp = `With --status-listen the status is served over HTTP, to everybody who reaches the address:
a page at /, /status as JSON, and /healthz, which answers 503 when a partition is FAILED, a
topic is refused or a mirror does not run. 127.0.0.1:0 takes a free port of this machine.`

func (f *boardFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.listen, "status-listen", "", "serve a status page at `host:port`, as 127.0.0.1:8090 (default: none is served)")
}

func (f *boardFlags) check() error {
	if f.listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return fmt.Errorf("--status-listen: %q is not host:port", f.listen)
	}
	if host == "" {
		return fmt.Errorf("--status-listen: %q has no host: 127.0.0.1 is for this machine alone, 0.0.0.0 for everybody", f.listen)
	}
	return nil
}

// board serves the status while the process runs; without an address it does nothing.
type board struct {
	address string
	page    *statuspage.Board
	end     func() // nil while nothing is served
}

// make makes what is not served yet. look is called by nobody before start.
func (f *boardFlags) make(look statuspage.Look) *board {
	b := &board{address: f.listen}
	if f.listen != "" {
		b.page = statuspage.New(look)
	}
	return b
}

// event is told on the page as well.
func (b *board) event(line string) {
	if b.page != nil {
		b.page.Event(line)
	}
}

// start takes the address, prints it and begins to serve; the second time it does nothing.
func (b *board) start(print func(string)) error {
	if b.page == nil || b.end != nil {
		return nil
	}
	l, err := net.Listen("tcp", b.address)
	if err != nil {
		return fmt.Errorf("--status-listen: %w", err)
	}
	print("status: http://" + l.Addr().String() + "/")
	host, _, _ := net.SplitHostPort(b.address) // check has looked
	server := &http.Server{
		Handler: b.page.Handler(host), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.page.Run(ctx) })
	running.Go(func() { _ = server.Serve(l) }) // until it is closed
	b.end = func() {
		cancel()
		server.Close()
		running.Wait()
	}
	return nil
}

// close ends what start began.
func (b *board) close() {
	if b.end != nil {
		b.end()
	}
}

// lookAt gives the one mirror of a run as a Controller would describe it.
func lookAt(m *atomic.Pointer[mirror.Mirror]) statuspage.Look {
	return func(context.Context) ([]mirror.Description, error) {
		s := m.Load().Status()
		return []mirror.Description{{
			Overview: mirror.Overview{Name: s.Mirror, SourceID: s.Source, DestinationID: s.Destination, Running: s.Running, States: s.States},
			Status:   s,
		}}, nil
	}
}

// lookAtAll gives the mirrors of a Controller.
func lookAtAll(ctx context.Context, c *mirror.Controller) ([]mirror.Description, error) {
	all, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]mirror.Description, 0, len(all))
	for _, o := range all {
		d, err := c.Describe(ctx, o.Name)
		if errors.Is(err, mirror.ErrUnknownMirror) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}
