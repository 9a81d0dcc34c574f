package topics

import (
	"context"
	"maps"
)

// Own says which settings of a topic at the destination are the mirror's doing. It goes
// through encoding/json unharmed; the zero value is a topic of which none are.
type Own struct {
	// Set are those that the mirror has set, with the value. It is stored before they are
	// set, so after a crash some may not be.
	Set map[string]string `json:"set,omitempty"`
	// Was are the topic's own values of settings that the destination requires otherwise,
	// Then the source's: these hold after the stop, the source's before its own.
	Was  map[string]string `json:"was,omitempty"`
	Then map[string]string `json:"then,omitempty"`
}

// IsZero reports whether nothing is the mirror's doing.
func (o Own) IsZero() bool { return len(o.Set) == 0 && len(o.Was) == 0 && len(o.Then) == 0 }

// Equal reports whether both say the same.
func (o Own) Equal(p Own) bool {
	return maps.Equal(o.Set, p.Set) && maps.Equal(o.Was, p.Was) && maps.Equal(o.Then, p.Then)
}

func (o Own) clone() Own { return Own{maps.Clone(o.Set), maps.Clone(o.Was), maps.Clone(o.Then)} }

// after is what a required setting becomes when the topic leaves the mirror; nil: it is
// taken away.
func (o Own) after(name string) *string {
	for _, m := range []map[string]string{o.Then, o.Was} {
		if v, ok := m[name]; ok {
			return &v
		}
	}
	return nil
}

// Owned keeps what is a mirror's doing, by topic. It has to outlive the process. Safe for
// concurrent use.
type Owned interface {
	// Load gives all that is kept; it is the receiver's.
	Load(ctx context.Context) (map[string]Own, error)
	// Swap puts values in the place of others, a zero one for none. Topics of which
	// something else is kept than was says are refused and keep no other from being
	// written. After an error a topic's may or may not have been.
	Swap(ctx context.Context, was, now map[string]Own) (refused []string, err error)
}
