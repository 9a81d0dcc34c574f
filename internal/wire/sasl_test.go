package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

func fakeCluster(t *testing.T, opts ...kfake.Opt) []string {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake.ListenAddrs()
}

func scramOf(t *testing.T, algo scram.Algorithm, password string) sasl.Mechanism {
	t.Helper()
	m, err := scram.Mechanism(algo, "admin", password)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSASL(t *testing.T) {
	seeds := fakeCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "joe", "secret"),
		kfake.Superuser("SCRAM-SHA-256", "admin", "secret"), kfake.Superuser("SCRAM-SHA-512", "admin", "secret"))
	for name, tc := range map[string]struct {
		mechanism sasl.Mechanism
		ok        bool
	}{
		"PLAIN":                      {plain.Mechanism{Username: "joe", Password: "secret"}, true},
		"SCRAM-SHA-256":              {scramOf(t, scram.SHA256, "secret"), true},
		"SCRAM-SHA-512":              {scramOf(t, scram.SHA512, "secret"), true},
		"a mechanism nobody offers":  {strangeMechanism{}, false},
		"a mechanism that will fail": {failingMechanism{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dial(testContext(t), seedAddr(seeds[0]), &Config{SASL: tc.mechanism})
			if !tc.ok {
				if !errors.Is(err, cluster.ErrAuthentication) || errors.Is(err, cluster.ErrUnreachable) {
					t.Fatalf("%v, want ErrAuthentication alone", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Do(testContext(t), kmsg.NewPtrMetadataRequest()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Kafka answers a wrong password with code 58. What closes the connection instead
// (kfake, brokers before 1.0) cannot be told from a lost connection.
func TestWrongPassword(t *testing.T) {
	p := &saslPeer{log: make(chan string, 100)}
	p.refuse.Store(true)
	addr := listen(t, func(conn net.Conn) { converse(conn, p.serve) })
	closing := seedAddr(fakeCluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "admin", "secret"))[0])
	for name, m := range map[string]sasl.Mechanism{
		"PLAIN":         plain.Mechanism{Username: "joe", Password: "nope"},
		"SCRAM-SHA-512": scramOf(t, scram.SHA512, "nope"),
	} {
		_, err := Dial(testContext(t), addr, &Config{SASL: m})
		if !errors.Is(err, cluster.ErrAuthentication) || !errors.Is(err, Code(58)) || errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%s: %v, want ErrAuthentication alone", name, err)
		} else if strings.Contains(err.Error(), "nope") {
			t.Errorf("%s: the password is in the error: %v", name, err)
		}
	}
	if _, err := Dial(testContext(t), closing, &Config{SASL: scramOf(t, scram.SHA512, "nope")}); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("closed in the exchange: %v, want ErrUnreachable", err)
	}
}

type strangeMechanism struct{}

func (strangeMechanism) Name() string { return "STRANGE" }
func (strangeMechanism) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return nil, nil, errors.New("not reached")
}

type failingMechanism struct{}

func (failingMechanism) Name() string { return "PLAIN" }
func (failingMechanism) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return nil, nil, errors.New("no ticket")
}

// lastWord says its last message together with done.
type lastWord struct{ host string }

func (*lastWord) Name() string { return "LAST" }
func (m *lastWord) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	m.host = sasl.MetadataFromContext(ctx).Host
	return m, []byte("first"), nil
}
func (*lastWord) Next(context.Context, []byte) (bool, []byte, error) {
	return true, []byte("last"), nil
}

// saslPeer answers the SASL requests and tells what was sent, in order.
type saslPeer struct {
	lifetime int64
	refuse   atomic.Bool
	log      chan string
}

func (p *saslPeer) serve(r *received) error {
	switch r.key {
	case 17:
		p.log <- "handshake"
		return r.answer(kmsg.NewPtrSASLHandshakeResponse().AppendTo(nil))
	case 36:
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version = r.version
		if err := req.ReadFrom(r.body); err != nil {
			return err
		}
		p.log <- string(req.SASLAuthBytes)
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.Version, resp.SessionLifetimeMillis = r.version, p.lifetime
		if p.refuse.Load() {
			resp.ErrorCode = 58
		}
		return r.answer(resp.AppendTo(nil))
	}
	p.log <- "request"
	return r.answer(r.body)
}

func (p *saslPeer) logged(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for len(p.log) > 0 {
		got = append(got, <-p.log)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the broker saw %q, want %q", got, want)
	}
}

func TestAnswerGivenWithDoneIsSent(t *testing.T) {
	p := &saslPeer{log: make(chan string, 100)}
	addr := listen(t, func(conn net.Conn) { converse(conn, p.serve) })
	m := new(lastWord)
	mustDial(t, addr, &Config{SASL: m})
	p.logged(t, "handshake", "first", "last")
	if m.host != addr.Host {
		t.Errorf("the mechanism was told host %q, want %q", m.host, addr.Host)
	}
}

// KIP-368: before the lifetime ends the client authenticates again, after the
// answers in flight and before any other request.
func TestReauthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &saslPeer{lifetime: 2000, log: make(chan string, 100)}
		slow := make(chan *received, 1)
		cfg := piped(func(conn net.Conn) {
			converse(conn, func(r *received) error {
				if string(r.body) == "slow" {
					slow <- r
					return nil
				}
				return p.serve(r)
			})
		})
		cfg.SASL = plain.Mechanism{Username: "u", Password: "p"}
		c := mustDial(t, Addr{ID: 1}, cfg)
		first := "\x00u\x00p"
		p.logged(t, "handshake", first)

		time.Sleep(1600 * time.Millisecond) // 80 %
		synctest.Wait()
		p.logged(t)
		held, outHeld := collect(1, time.Minute, "slow")
		if err := c.Send(held...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(350 * time.Millisecond) // 97.5 %: it is due, and waits for the answer in flight
		queued, outQueued := collect(1, time.Minute, "queued")
		go c.Send(queued...)
		synctest.Wait()
		p.logged(t)
		if err := (<-slow).answer([]byte("at last")); err != nil {
			t.Fatal(err)
		}
		if got := <-outHeld; got.body != "at last" {
			t.Errorf("the answer in flight: %+v", got)
		}
		if got := <-outQueued; got.body != "queued" {
			t.Errorf("the request that waited: %+v", got)
		}
		p.logged(t, "handshake", first, "request")

		p.refuse.Store(true)
		<-c.Done()
		if err := c.Err(); !errors.Is(err, cluster.ErrAuthentication) {
			t.Errorf("refused: %v, want ErrAuthentication", err)
		}
		calls, _ := collect(1, 0)
		if err := c.Send(calls...); !errors.Is(err, cluster.ErrAuthentication) {
			t.Errorf("Send after it: %v, want ErrAuthentication", err)
		}
	})
}

func TestListenerWithoutSASL(t *testing.T) {
	addr := listen(t, func(conn net.Conn) {
		if r, err := readRequest(conn); err == nil {
			r.versions(map[int16]versionRange{18: {0, 3}})
		}
		io.Copy(io.Discard, conn)
	})
	_, err := Dial(testContext(t), addr, &Config{SASL: plain.Mechanism{}})
	if !errors.Is(err, cluster.ErrAuthentication) {
		t.Errorf("%v, want ErrAuthentication", err)
	}
}
