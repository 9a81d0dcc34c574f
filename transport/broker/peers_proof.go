package broker

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// secretKeeper is what Overrides of several processes can do besides: keep a secret that only
// those processes know who can read what they share.
type secretKeeper interface {
	// Secret gives it, made by whoever asks first.
	Secret(ctx context.Context) ([]byte, error)
}

var _ secretKeeper = sharedOverrides{}

const (
	secretSize = 32
	nonceSize  = 16
	proofSize  = sha256.Size
)

// proofOf is what only who knows the secret can say to a question: that it comes from this
// broker, so that it cannot be had from another one, and with this nonce, so that it is no earlier
// answer.
func proofOf(secret, nonce []byte, broker int32, group digest, turn bool) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("worker of a mirror answers"))
	mac.Write(nonce)
	said := binary.BigEndian.AppendUint32(nil, uint32(broker))
	if said = append(append(said, group[:]...), 0); turn {
		said[len(said)-1] = 1
	}
	mac.Write(said)
	return mac.Sum(nil)
}

// storedSecret is the secret as JSON.
type storedSecret struct {
	Version int    `json:"v"`
	Secret  []byte `json:"secret"`
}

// Secret is of secretKeeper.
func (o sharedOverrides) Secret(ctx context.Context) ([]byte, error) {
	for {
		notes, err := o.s.notes.Notes(ctx, o.s.mirror)
		if err != nil {
			return nil, err
		}
		if note, ok := notes[secretNote]; ok {
			var stored storedSecret
			err := json.Unmarshal(note, &stored)
			if err == nil && (stored.Version != storedVersion || len(stored.Secret) < secretSize) {
				err = fmt.Errorf("version %d with %d bytes is not known", stored.Version, len(stored.Secret))
			}
			if err != nil {
				return nil, fmt.Errorf("note %q: %w", secretNote, err)
			}
			return stored.Secret, nil
		}
		fresh := make([]byte, secretSize)
		_, _ = rand.Read(fresh) // never fails
		now := map[string][]byte{secretNote: document(storedSecret{storedVersion, fresh})}
		if _, err := o.s.notes.SwapNotes(ctx, o.s.mirror, map[string][]byte{secretNote: nil}, now); err != nil {
			return nil, err
		}
	}
}

// share has the secret at hand by which workers know each other, where they share one.
func (p *peers) share(ctx context.Context, o Overrides) (err error) {
	if k, can := o.(secretKeeper); p != nil && can {
		p.secret, err = k.Secret(ctx)
	}
	return err
}
