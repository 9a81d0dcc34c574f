package broker

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/clustermirror/mirror/internal/metalog"
)

// Identity is who we are to the cluster. It has to outlive the process: with the
// same incarnation we get our session back at once after a crash, instead of
// waiting for it to end, and with another directory elections for the partitions
// of before would fail.
type Identity struct {
	Broker                 int32
	Incarnation, Directory metalog.UUID
}

// Identities keeps identities, by the Name of the Config. Whoever keeps them has
// to see to it that no two living processes get the same one. Implementations are
// safe for concurrent use.
type Identities interface {
	// Load gives the identity saved last; ok is false when there is none.
	Load(ctx context.Context, name string) (id Identity, ok bool, err error)
	// Save returns when the identity is stored.
	Save(ctx context.Context, name string, id Identity) error
	// Delete forgets it. Nothing to forget is no error.
	Delete(ctx context.Context, name string) error
}

// MemoryIdentities are forgotten with the process: for tests, and for a host that
// leaves the cluster before it ends. The zero value is ready.
type MemoryIdentities struct {
	mu  sync.Mutex
	all map[string]Identity
}

// Load is of Identities.
func (m *MemoryIdentities) Load(_ context.Context, name string) (Identity, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, ok := m.all[name]
	return id, ok, nil
}

// Save is of Identities.
func (m *MemoryIdentities) Save(_ context.Context, name string, id Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[string]Identity)
	}
	m.all[name] = id
	return nil
}

// Delete is of Identities.
func (m *MemoryIdentities) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
	return nil
}

// newIdentity invents one. The ids are random UUIDs (version 4), which are none of
// those that Kafka reserves.
func newIdentity(broker int32) Identity {
	id := Identity{Broker: broker}
	for _, u := range []*metalog.UUID{&id.Incarnation, &id.Directory} {
		_, _ = rand.Read(u[:]) // never fails
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	}
	return id
}
