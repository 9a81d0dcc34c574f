package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

func image(t *testing.T, records ...metalog.Record) metalog.Image {
	t.Helper()
	var i metalog.Image
	var d metalog.Delta
	for _, r := range records {
		var err error
		if i, err = i.Apply(r, &d); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

func registered(id int32, incarnation, directory byte) metalog.RegisterBroker {
	return metalog.RegisterBroker{Broker: metalog.Broker{ID: id, Incarnation: metalog.UUID{incarnation}, Directories: []metalog.UUID{{directory}}}}
}

func TestDecisions(t *testing.T) {
	lost := &wire.Error{Cause: wire.Closed}
	for _, tt := range []struct {
		err          error
		beat, joined next
		reason       error
	}{
		{nil, goOn, goOn, nil},
		{codeStaleBrokerEpoch, register, seek, nil},
		{codeNotRegistered, register, seek, nil},
		{codeNotController, seek, seek, nil},
		{lost, seek, seek, nil},
		{codeDuplicateRegistration, seek, nextID, nil},
		{codeInconsistentClusterID, seek, giveUp, cluster.ErrClusterReplaced},
		{codeClusterAuthorization, seek, giveUp, cluster.ErrAuthorization},
		{codeUnsupportedVersion, seek, giveUp, codeUnsupportedVersion},
		{codeInvalidRegistration, seek, giveUp, codeInvalidRegistration},
	} {
		t.Run(fmt.Sprint(tt.err), func(t *testing.T) {
			if got := afterHeartbeat(tt.err); got != tt.beat {
				t.Errorf("after a heartbeat: %v", got)
			}
			got, err := afterRegistration(tt.err)
			if got != tt.joined || !errors.Is(err, tt.reason) {
				t.Errorf("after a registration: %v, %v", got, err)
			}
		})
	}
	now := time.Now()
	if late(time.Time{}, now, time.Second) || late(now.Add(-time.Second), now, time.Second) || !late(now.Add(-2*time.Second), now, time.Second) {
		t.Error("late")
	}
}

func TestAsRegistered(t *testing.T) {
	cfg := Config{Rack: "r", Listeners: []Listener{{Name: "A", Host: "h", Port: 1}, {Name: "B", Host: "h", Port: 2, Protocol: 3}}}
	req := registration(Identity{Broker: 100, Incarnation: metalog.UUID{1}, Directory: metalog.UUID{2}}, cfg, "c", 7, []metalog.Feature{{Name: "x", Max: 3}})
	for _, tt := range []struct {
		name   string
		change func(*metalog.Broker)
		want   bool
	}{
		{"the same", func(*metalog.Broker) {}, true},
		{"fenced and cordoned", func(b *metalog.Broker) { b.Fenced, b.Cordoned = true, b.Directories }, true},
		{"in another order", func(b *metalog.Broker) { slices.Reverse(b.Listeners) }, true},
		{"of an earlier incarnation", func(b *metalog.Broker) { b.Incarnation = metalog.UUID{9} }, false},
		{"on its way out", func(b *metalog.Broker) { b.InControlledShutdown = true }, false},
		{"elsewhere", func(b *metalog.Broker) { b.Listeners[1].Port = 3 }, false},
		{"with a listener more", func(b *metalog.Broker) { b.Listeners = append(b.Listeners, metalog.Listener{Name: "C"}) }, false},
		{"of older software", func(b *metalog.Broker) { b.Features[0].Max = 2 }, false},
		{"in another rack", func(b *metalog.Broker) { b.Rack = "" }, false},
		{"with another directory", func(b *metalog.Broker) { b.Directories = []metalog.UUID{{3}} }, false},
	} {
		b := metalog.Broker{ID: 100, Epoch: 7, Incarnation: metalog.UUID{1}, Directories: []metalog.UUID{{2}}, Rack: "r",
			Listeners: []metalog.Listener{{Name: "A", Host: "h", Port: 1}, {Name: "B", Host: "h", Port: 2, Protocol: 3}}, Features: []metalog.Feature{{Name: "x", Max: 3}}}
		tt.change(&b)
		epoch, got := asRegistered(image(t, metalog.RegisterBroker{Broker: b}), req)
		if got != tt.want || got && epoch != 7 {
			t.Errorf("%s: %v, epoch %d", tt.name, got, epoch)
		}
	}
	if _, ok := asRegistered(image(t), req); ok {
		t.Error("never registered")
	}
}

// TestAbilities: we can what any other broker can, but for levels of metadata.version that nobody
// has tried. What we have registered ourselves does not count.
func TestAbilities(t *testing.T) {
	of := func(id int32, features ...metalog.Feature) metalog.Record {
		return metalog.RegisterBroker{Broker: metalog.Broker{ID: id, Features: features}}
	}
	old, young := metalog.Feature{Name: metadataVersion, Min: 1, Max: 21}, metalog.Feature{Name: metadataVersion, Min: 7, Max: 40}
	both := metalog.Feature{Name: metadataVersion, Min: 1, Max: 33}
	group := metalog.Feature{Name: "group.version", Max: 1}
	for _, tt := range []struct {
		name    string
		records []metalog.Record
		most    int16
		want    []metalog.Feature
	}{
		{"nobody", nil, 33, nil},
		{"one release", []metalog.Record{of(1, old), of(2, old)}, 33, []metalog.Feature{old}},
		{"the first of the next one", []metalog.Record{of(1, old), of(2, young, group)}, 33, []metalog.Feature{group, both}},
		{"untested", []metalog.Record{of(1, young)}, 99, []metalog.Feature{young}},
		{"and us, of a release that is gone", []metalog.Record{of(1, old), of(100, young, group)}, 33, []metalog.Feature{old}},
	} {
		if got := abilities(image(t, tt.records...), 100, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestLacking(t *testing.T) {
	if got := lacking(1<<7 | 1<<8 | 1<<9); got != nil {
		t.Errorf("lacks %v", got)
	}
	if got := lacking(1 << 8); len(got) != 2 || got[0] != "Alter" || got[1] != "ClusterAction" {
		t.Errorf("lacks %v", got)
	}
}

func TestCheckListeners(t *testing.T) {
	i := image(t,
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Listeners: []metalog.Listener{{Name: "INTERNAL", Protocol: 2}}}},
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Listeners: []metalog.Listener{{Name: "OURS"}}}})
	for name, tt := range map[string]struct {
		listener Listener
		ok       bool
	}{
		"fits":             {Listener{Name: "INTERNAL", Protocol: 2}, true},
		"another protocol": {Listener{Name: "INTERNAL"}, false},
		"known to us only": {Listener{Name: "OURS"}, false},
	} {
		if err := checkListeners(i, []Listener{tt.listener}, IDs{100, 101}); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnrelayable(t *testing.T) {
	ssl, login := int16(protocolSSL), int16(protocolSASLSSL)
	tests := []struct {
		name     string
		listener Listener
		how      manner
		asks     bool // we, between brokers
		no, some string
	}{
		{name: "between brokers, who ask as we do", listener: Listener{Name: "INTERNAL", Protocol: ssl}, how: manner{asks: true, insists: true}, asks: true},
		{name: "between brokers, who ask", listener: Listener{Name: "INTERNAL", Protocol: ssl}, how: manner{asks: true}, no: "by ClientAuth and ClientCAs"},
		{name: "clients that are asked", listener: Listener{Name: "CLIENT", Protocol: ssl}, how: manner{asks: true}, asks: true, no: "leave it out"},
		{name: "clients that are not asked", listener: Listener{Name: "CLIENT", Protocol: ssl}},
		{name: "logins, and a certificate if they like", listener: Listener{Name: "CLIENT", Protocol: login}, how: manner{asks: true, mechanisms: []string{"PLAIN"}}},
		{name: "logins, and a certificate", listener: Listener{Name: "CLIENT", Protocol: login}, how: manner{asks: true, insists: true}, no: "besides a login"},
		{name: "Kerberos", listener: Listener{Name: "CLIENT", Protocol: 2}, how: manner{mechanisms: []string{"GSSAPI"}}, no: "by GSSAPI"},
		{name: "Kerberos too", listener: Listener{Name: "CLIENT", Protocol: 2}, how: manner{mechanisms: []string{"PLAIN", "GSSAPI"}}, some: "by GSSAPI"},
	}
	for _, tt := range tests {
		no, some := unrelayable(tt.listener, tt.how, served{between: "INTERNAL", asks: tt.asks})
		if (no == "") != (tt.no == "") || (some == "") != (tt.some == "") || !strings.Contains(no, tt.no) || !strings.Contains(some, tt.some) {
			t.Errorf("%s: %q, %q; want %q, %q", tt.name, no, some, tt.no, tt.some)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Config{Bootstrap: []string{"h:1"}, IDs: IDs{100, 100}, Identities: new(MemoryIdentities),
		Listeners: []Listener{{Name: "A", Host: "h", Port: 1}}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no bootstrap": func(c *Config) { c.Bootstrap = nil }, "no port": func(c *Config) { c.Controllers = []string{"h"} },
		"range": func(c *Config) { c.IDs = IDs{5, 4} }, "no listener": func(c *Config) { c.Listeners = nil },
		"twice":      func(c *Config) { c.Listeners = append(c.Listeners, c.Listeners[0]) },
		"protocol":   func(c *Config) { c.Listeners = []Listener{{Name: "A", Host: "h", Port: 1, Protocol: 4}} },
		"identities": func(c *Config) { c.Identities = nil }, "interval": func(c *Config) { c.HeartbeatInterval = 3 * time.Second },
		"negative": func(c *Config) { c.SessionTimeout = -1 },
	} {
		bad := good
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s is valid", name)
		}
		if _, err := New(bad); err == nil {
			t.Errorf("%s: New accepts it", name)
		}
	}
}

// TestReals: a client is passed on to living real brokers on his own listener only.
func TestReals(t *testing.T) {
	i := image(t,
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Listeners: []metalog.Listener{{Name: "A", Port: 1}, {Name: "B", Port: 2}}}},
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 2, Fenced: true, Listeners: []metalog.Listener{{Name: "A", Port: 3}}}},
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 100, Listeners: []metalog.Listener{{Name: "A", Port: 4}}}})
	if got := reals(i, "A", IDs{100, 101}); len(got) != 1 || got[0].Port != 1 {
		t.Errorf("real brokers: %+v", got)
	}
	m := &Membership{cfg: Config{IDs: IDs{100, 101}, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }}, log: metalog.New(metalog.Config{})}
	if _, err := m.dialReal(t.Context(), "A"); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
}

// TestEpochBefore: our session always ended in order, also where nobody knows us.
func TestEpochBefore(t *testing.T) {
	i := image(t, known(100, true))
	if got := epochBefore(i, Identity{Broker: 100}); got != 5 {
		t.Errorf("registered in epoch 5: %d", got)
	}
	if got := registration(Identity{Broker: 101}, Config{}, "", epochBefore(i, Identity{Broker: 101}), nil); got.PreviousBrokerEpoch != -2 {
		t.Errorf("not registered: %d", got.PreviousBrokerEpoch)
	}
}
