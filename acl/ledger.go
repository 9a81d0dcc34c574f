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

// A Ledger keeps which mirrors hold which access rules of a cluster, one note a rule: those that
// were copied, and those that a [Guard] has added. All mirrors into a cluster whose state
// is in one store know of each other by it.
type Ledger struct {
	Notes   Notes
	Cluster string // id of the destination
	Mirror  string // whose hand it is in
}

// name is what the notes stand under; no mirror can be called so.
func (l Ledger) name() string { return "acls:" + l.Cluster }

// book are the notes of one kind, as of one reading.
type book struct {
	key    string // what the keys of its notes begin with
	owners Owners
	stored map[cluster.Binding][]byte
}

// page is all that stands there.
type page struct{ copied, guards *book }

// read gives what is stored now.
func (l Ledger) read(ctx context.Context) (*page, error) {
	notes, err := l.Notes.Notes(ctx, l.name())
	if err != nil {
		return nil, fmt.Errorf("ACLs that were created before: %w", err)
	}
	copied, err := open(notes, noteKey)
	if err != nil {
		return nil, err
	}
	guards, err := open(notes, guardKey)
	return &page{copied, guards}, err
}

// open reads the notes whose keys begin with key.
func open(notes map[string][]byte, key string) (*book, error) {
	b := &book{key, Owners{}, map[cluster.Binding][]byte{}}
	for k, n := range notes {
		fields, ours := strings.CutPrefix(k, key)
		if !ours {
			continue
		}
		rule, owners, err := decode(fields, n)
		if err != nil {
			return nil, fmt.Errorf("ACLs that were created before: note %q: %w", k, err)
		}
		b.owners[rule], b.stored[rule] = owners, n
	}
	return b, nil
}

// hold stores that the mirror holds rules, and release that it does not. refused are those
// that another process has written meanwhile.
func (l Ledger) hold(ctx context.Context, in *book, bs []cluster.Binding) (refused map[cluster.Binding]bool, err error) {
	return l.swap(ctx, in, bs, func(owners []string) []string {
		at, found := slices.BinarySearch(owners, l.Mirror)
		if found {
			return owners
		}
		return slices.Insert(slices.Clone(owners), at, l.Mirror)
	})
}

func (l Ledger) release(ctx context.Context, in *book, bs []cluster.Binding) (refused map[cluster.Binding]bool, err error) {
	return l.swap(ctx, in, bs, func(owners []string) []string {
		return slices.DeleteFunc(slices.Clone(owners), func(name string) bool { return name == l.Mirror })
	})
}

func (l Ledger) swap(ctx context.Context, in *book, bs []cluster.Binding, change func([]string) []string) (map[cluster.Binding]bool, error) {
	was, now := map[string][]byte{}, map[string][]byte{}
	next := Owners{}
	for _, b := range bs {
		owners := change(in.owners[b])
		if slices.Equal(owners, in.owners[b]) {
			continue
		}
		fields, note := encode(b, owners)
		was[in.key+fields], now[in.key+fields], next[b] = in.stored[b], note, owners
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
		fields, note := encode(b, owners)
		switch {
		case slices.Contains(keys, in.key+fields):
			refused[b] = true
		case note == nil:
			delete(in.owners, b)
			delete(in.stored, b)
		default:
			in.owners[b], in.stored[b] = owners, note
		}
	}
	return refused, nil
}

// holds reports whether the ledger's mirror is among the owners of a rule.
func (l Ledger) holds(in *book, b cluster.Binding) bool {
	return slices.Contains(in.owners[b], l.Mirror)
}

// held are the rules that the ledger's mirror holds, sorted.
func (l Ledger) held(in *book) (bs []cluster.Binding) {
	for b := range in.owners {
		if l.holds(in, b) {
			bs = append(bs, b)
		}
	}
	slices.SortFunc(bs, compare)
	return bs
}

const (
	noteKey     = "acl/"
	guardKey    = "guard/"
	noteVersion = 1
)

// note is the stored form of a value; a key holds, behind that of the book, the fields of the
// rule as a JSON array.
type note struct {
	Version int      `json:"v"`
	Mirrors []string `json:"mirrors"`
}

// encode gives no note where nobody holds the rule.
func encode(b cluster.Binding, owners []string) (fields string, value []byte) {
	key, _ := json.Marshal([]string{b.ResourceType, b.PatternType, b.Name, b.Principal, b.Host, b.Operation, b.Permission})
	if len(owners) > 0 {
		value, _ = json.Marshal(note{noteVersion, owners}) // of texts and numbers: never fails
	}
	return string(key), value
}

func decode(fields string, value []byte) (cluster.Binding, []string, error) {
	var f []string
	if err := json.Unmarshal([]byte(fields), &f); err != nil {
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

// Forget strikes the ledger's mirror off: rules that it has copied and that no other mirror
// holds are nobody's from then on, and stay.
func (l Ledger) Forget(ctx context.Context) error {
	p, err := l.read(ctx)
	if err != nil {
		return err
	}
	refused, err := l.release(ctx, p.copied, l.held(p.copied))
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("which ACLs are created: %w: another mirror has just written it", cluster.ErrUnavailable)
	}
	return err
}
