package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Kept is an identity as it is kept.
type Kept struct {
	Identity
	// Name is the Config.Name of the process that had it last, which finds it again.
	Name string
	// Holder is the life of a process that has it; empty when it ended in order. Whoever
	// finds another one there than its own has lost the identity.
	Holder string
}

// Identities keeps who the processes of a mirror are, at most one for each broker id.
// Implementations are safe for concurrent use.
type Identities interface {
	// All gives those that are kept.
	All(ctx context.Context) ([]Kept, error)
	// Swap puts one in the place of another of the same broker id, where nil is nothing,
	// and returns when that is stored. ok is false, and nothing is changed, when something
	// else is kept than was.
	Swap(ctx context.Context, was, now *Kept) (ok bool, err error)
}

// MemoryIdentities are forgotten with the process: for tests, and for a host that
// leaves the cluster before it ends. The zero value is ready.
type MemoryIdentities struct {
	mu  sync.Mutex
	all map[int32]Kept
}

// All is of Identities.
func (m *MemoryIdentities) All(ctx context.Context) ([]Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.all)), ctx.Err()
}

// Swap is of Identities.
func (m *MemoryIdentities) Swap(ctx context.Context, was, now *Kept) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if m.all == nil {
		m.all = make(map[int32]Kept)
	}
	return swapKept(m.all, was, now)
}

// swapKept is Swap on a map.
func swapKept(all map[int32]Kept, was, now *Kept) (bool, error) {
	id, err := brokerOf(was, now)
	if err != nil {
		return false, err
	}
	if is, ok := all[id]; ok != (was != nil) || ok && is != *was {
		return false, nil
	}
	if now == nil {
		delete(all, id)
	} else {
		all[id] = *now
	}
	return true, nil
}

func brokerOf(was, now *Kept) (int32, error) {
	switch {
	case was == nil && now == nil:
		return 0, errors.New("an identity that is nothing in the place of nothing")
	case was == nil:
		return now.Broker, nil
	case now != nil && now.Broker != was.Broker:
		return 0, fmt.Errorf("an identity of broker %d in the place of one of broker %d", now.Broker, was.Broker)
	}
	return was.Broker, nil
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

// storedIdentity is a Kept as JSON, its ids as Kafka's tools print them.
type storedIdentity struct {
	Version     int    `json:"v"`
	Broker      int32  `json:"broker"`
	Incarnation string `json:"incarnation"`
	Directory   string `json:"directory"`
	Name        string `json:"name"`
	Holder      string `json:"holder,omitempty"`
}

const storedVersion = 1

func (k Kept) stored() storedIdentity {
	text := base64.RawURLEncoding.EncodeToString
	return storedIdentity{storedVersion, k.Broker, text(k.Incarnation[:]), text(k.Directory[:]), k.Name, k.Holder}
}

func (s storedIdentity) kept() (Kept, error) {
	k := Kept{Identity: Identity{Broker: s.Broker}, Name: s.Name, Holder: s.Holder}
	if s.Version != storedVersion {
		return k, fmt.Errorf("the identity of broker %d has version %d, and %d is known", s.Broker, s.Version, storedVersion)
	}
	for text, to := range map[*string]*metalog.UUID{&s.Incarnation: &k.Incarnation, &s.Directory: &k.Directory} {
		b, err := base64.RawURLEncoding.DecodeString(*text)
		if err != nil || len(b) != len(to) {
			return k, fmt.Errorf("the identity of broker %d has %q for a UUID", s.Broker, *text)
		}
		copy(to[:], b)
	}
	return k, nil
}
