package acl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// A Ledger keeps which mirrors hold which access rules of a cluster, one note a rule. All
// mirrors into a cluster whose state is in one store know of each other by it.
type Ledger struct {
	Notes   Notes
	Cluster string // id of the destination
	Mirror  string // whose hand it is in
}

// name is what the notes stand under; no mirror can be called so.
func (l Ledger) name() string { return "acls:" + l.Cluster }

// page is what stands there, as of one reading.
type page struct {
	owners Owners
	stored map[cluster.Binding][]byte
}

// read gives what is stored now.
func (l Ledger) read(ctx context.Context) (*page, error) {
	notes, err := l.Notes.Notes(ctx, l.name())
	if err != nil {
		return nil, fmt.Errorf("ACLs that were created before: %w", err)
	}
	p := &page{Owners{}, map[cluster.Binding][]byte{}}
	for key, n := range notes {
		if !strings.HasPrefix(key, noteKey) {
			continue
		}
		b, owners, err := decode(key, n)
		if err != nil {
			return nil, fmt.Errorf("ACLs that were created before: note %q: %w", key, err)
		}
		p.owners[b], p.stored[b] = owners, n
	}
	return p, nil
}

// hold stores that the mirror holds rules, and release that it does not. refused are those
// that another process has written meanwhile.
func (l Ledger) hold(ctx context.Context, p *page, bs []cluster.Binding) (refused map[cluster.Binding]bool, err error) {
	return l.swap(ctx, p, bs, func(owners []string) []string {
		at, found := slices.BinarySearch(owners, l.Mirror)
		if found {
			return owners
		}
		return slices.Insert(slices.Clone(owners), at, l.Mirror)
	})
}

func (l Ledger) release(ctx context.Context, p *page, bs []cluster.Binding) (refused map[cluster.Binding]bool, err error) {
	return l.swap(ctx, p, bs, func(owners []string) []string {
		return slices.DeleteFunc(slices.Clone(owners), func(name string) bool { return name == l.Mirror })
	})
}

func (l Ledger) swap(ctx context.Context, p *page, bs []cluster.Binding, change func([]string) []string) (map[cluster.Binding]bool, error) {
	was, now := map[string][]byte{}, map[string][]byte{}
	next := Owners{}
	for _, b := range bs {
		owners := change(p.owners[b])
		if slices.Equal(owners, p.owners[b]) {
			continue
		}
		key, note := encode(b, owners)
		was[key], now[key], next[b] = p.stored[b], note, owners
	}
	if len(now) == 0 {
		return nil, nil
	}
	keys, err := l.Notes.SwapNotes(ctx, l.name(), was, now)
	if err != nil {
		return nil, fmt.Errorf("which ACLs are created is not stored: %w", err)
	}
	refused := map[cluster.Binding]bool{}
	for b, owners := range next {
		key, note := encode(b, owners)
		switch {
		case slices.Contains(keys, key):
			refused[b] = true
		case note == nil:
			delete(p.owners, b)
			delete(p.stored, b)
		default:
			p.owners[b], p.stored[b] = owners, note
		}
	}
	return refused, nil
}

const (
	noteKey     = "acl/"
	noteVersion = 1
)

// note is the stored form of a value; a key holds the fields of the rule as a JSON array.
type note struct {
	Version int      `json:"v"`
	Mirrors []string `json:"mirrors"`
}

// encode gives no note where nobody holds the rule.
func encode(b cluster.Binding, owners []string) (key string, value []byte) {
	fields, _ := json.Marshal([]string{b.ResourceType, b.PatternType, b.Name, b.Principal, b.Host, b.Operation, b.Permission})
	if len(owners) > 0 {
		value, _ = json.Marshal(note{noteVersion, owners}) // of texts and numbers: never fails
	}
	return noteKey + string(fields), value
}

func decode(key string, value []byte) (cluster.Binding, []string, error) {
	var f []string
	if err := json.Unmarshal([]byte(strings.TrimPrefix(key, noteKey)), &f); err != nil {
		return cluster.Binding{}, nil, err
	}
	var n note
	if err := json.Unmarshal(value, &n); err != nil {
		return cluster.Binding{}, nil, err
	}
	switch {
	case len(f) != 7:
		return cluster.Binding{}, nil, fmt.Errorf("an ACL has 7 fields, not %d", len(f))
	case n.Version != noteVersion:
		return cluster.Binding{}, nil, fmt.Errorf("version %d is not known (this library writes %d)", n.Version, noteVersion)
	case len(n.Mirrors) == 0:
		return cluster.Binding{}, nil, errors.New("names no mirror")
	}
	slices.Sort(n.Mirrors)
	return cluster.Binding{
		ResourceType: f[0], PatternType: f[1], Name: f[2], Principal: f[3], Host: f[4], Operation: f[5], Permission: f[6],
	}, slices.Compact(n.Mirrors), nil
}
