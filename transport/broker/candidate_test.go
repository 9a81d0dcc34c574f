package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
)

// TestJoinable: all that a start would be refused for is said, not only the first of it, and
// nobody is registered.
func TestJoinable(t *testing.T) {
	f := startFake(t, 1)
	look := func(ids IDs, controllers []string, listeners ...string) []error {
		cfg := Config{Bootstrap: f.Addrs(), Controllers: controllers, IDs: ids}
		for _, name := range listeners {
			cfg.Listeners = append(cfg.Listeners, Listener{Name: name, Host: "127.0.0.1", Port: 1})
		}
		c, err := NewCandidate(cfg, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if controllers[0] != f.Addrs()[0] {
			c.wait = 100 * time.Millisecond
		}
		return c.Joinable(within(t, time.Minute))
	}
	if why := look(IDs{100, 101}, f.Addrs(), "INTERNAL"); len(why) > 0 {
		t.Errorf("nothing is wrong: %v", why)
	}
	why := look(IDs{1, 1}, f.Addrs(), "OTHER", "ANOTHER")
	if len(why) != 3 || !strings.Contains(why[0].Error(), `"OTHER"`) || !strings.Contains(why[1].Error(), `"ANOTHER"`) || !errors.Is(why[2], ErrNoID) {
		t.Errorf("two listeners and an id: %v", why)
	}
	if why := look(IDs{100, 101}, []string{"127.0.0.1:1"}, "INTERNAL"); len(why) != 1 || !errors.Is(why[0], ErrNoControllers) {
		t.Errorf("no controllers: %v", why)
	}
	m, err := New(Config{Bootstrap: f.Addrs(), Controllers: f.Addrs(), IDs: IDs{100, 101}, Identities: new(MemoryIdentities), Listeners: []Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.brokers.Close()
	ctx := within(t, time.Minute)
	go m.log.Run(ctx)
	image, err := m.log.Wait(ctx, func(metalog.Image) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if _, registered := image.Broker(100); registered {
		t.Error("who only looks is registered")
	}
}
