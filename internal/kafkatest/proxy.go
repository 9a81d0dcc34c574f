package kafkatest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is a listening TCP proxy with the faults of a [Link], for clients in
// another process. Its writes are what arrives at once, at most 64 KiB. A
// refused connection is accepted by the kernel and then reset.
type Proxy struct {
	*Link
	target   string
	listener net.Listener
	ctx      context.Context // ends with the proxy; dials live under it
	wg       sync.WaitGroup
}

// NewProxy starts a proxy in front of target ("host:port") that ends with the
// test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	p := &Proxy{Link: newLink(), target: target, listener: listener, ctx: ctx}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		cancel()
		listener.Close()
		p.close()
		p.wg.Wait()
	})
	return p
}

// Addr returns the address to dial instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		p.wg.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve moves bytes until one side ends. A refused or cut connection is reset.
func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	server, err := p.dial(p.ctx, "tcp", p.target, &p.wg)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		defer server.Close()
		_ = relay(server, client)
	})
	if err := relay(client, server); err != nil {
		_ = client.SetLinger(0)
	}
	client.Close()
	up.Wait()
}

// relay copies until from ends (nil) or one of them fails.
func relay(to, from net.Conn) error {
	buf := make([]byte, maxPiece)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return ended(err)
		}
	}
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
