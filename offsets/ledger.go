package offsets

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clustermirror/mirror/cluster"
)

// A Ledger knows what was committed, so that a group which moved by itself is told from one
// that was moved. It is kept in the notes of a mirror, one note a group, written before
// what it says is done. It is not safe for concurrent use.
type Ledger struct {
	notes  Notes
	mirror string
	pages  map[string]*page // by key
	read   bool             // pages are what is stored
}

// page is one group's.
type page struct {
	marks  Marks
	stored []byte // as it stands among the notes; nil where it does not
}

// NewLedger gives the ledger of a mirror. notes may be nil: then it is forgotten with the
// process.
func NewLedger(notes Notes, mirror string) *Ledger {
	return &Ledger{notes: notes, mirror: mirror, pages: map[string]*page{}}
}

// The keys of the notes begin with these.
const (
	groupNotes = "group/"
	shareNotes = "sharegroup/"
)

// key is a group's among the notes. Notes have only text for keys.
func key(kind, group string) string {
	if !utf8.ValidString(group) {
		return kind + fmt.Sprintf("%+q", group)
	}
	return kind + group
}

// load reads what is stored, where that is not known. When it fails, what this process
// knows remains.
func (l *Ledger) load(ctx context.Context) error {
	if l.read {
		return nil
	}
	pages := map[string]*page{}
	if l.notes != nil {
		all, err := l.notes.Notes(ctx, l.mirror)
		if err != nil {
			return fmt.Errorf("what was committed before: %w", err)
		}
		for k, note := range all {
			if !strings.HasPrefix(k, groupNotes) && !strings.HasPrefix(k, shareNotes) {
				continue
			}
			marks, err := decode(note)
			if err != nil {
				return fmt.Errorf("what was committed before: note %q: %w", k, err)
			}
			pages[k] = &page{marks, note}
		}
	}
	l.pages, l.read = pages, true
	return nil
}

func (l *Ledger) marks(key string) Marks {
	if p := l.pages[key]; p != nil {
		return p.marks
	}
	return nil
}

// record stores marks beside those that there are. refused are keys that another process has
// written meanwhile: everything is read again before the next use.
func (l *Ledger) record(ctx context.Context, changed map[string]Marks) (refused []string, err error) {
	next := make(map[string]*page, len(changed))
	was, now := map[string][]byte{}, map[string][]byte{}
	for k, marks := range changed {
		next[k] = l.with(k, marks)
		if now[k], err = encode(next[k].marks); err != nil {
			return nil, err
		}
		if p := l.pages[k]; p != nil {
			was[k] = p.stored
		}
	}
	if l.notes != nil && len(now) > 0 {
		if refused, err = l.notes.SwapNotes(ctx, l.mirror, was, now); err != nil {
			l.read = false // what stands there now is not known
			return nil, fmt.Errorf("what is committed is not stored: %w", err)
		}
	}
	for k, p := range next {
		if !slices.Contains(refused, k) {
			p.stored = now[k]
			l.pages[k] = p
		}
	}
	if len(refused) > 0 {
		l.read = false
	}
	return refused, nil
}

// with is a page with other marks.
func (l *Ledger) with(key string, changed Marks) *page {
	marks := make(Marks, len(changed))
	maps.Copy(marks, l.marks(key))
	maps.Copy(marks, changed)
	return &page{marks: marks}
}

// Cut stores that what we have committed behind cuts stands at them: the logs are about to be cut
// there, and groups to be pulled back.
func (l *Ledger) Cut(ctx context.Context, cuts map[cluster.Partition]int64) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	changed := map[string]Marks{}
	for k, page := range l.pages {
		for p, at := range cuts {
			if next, lower := page.marks[p].upTo(at); lower {
				if changed[k] == nil {
					changed[k] = Marks{}
				}
				changed[k][p] = next
			}
		}
	}
	refused, err := l.record(ctx, changed)
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("%w: another process has written %q", cluster.ErrUnavailable, refused)
	}
	return err
}

// upTo is a mark without offsets behind one.
func (m Mark) upTo(end int64) (next Mark, lower bool) {
	next.Stretch = m.Stretch
	for _, at := range m.Offsets {
		lower = lower || at > end
		next.Offsets = with(next.Offsets, min(at, end))
	}
	return next, lower
}

// settle notes that offsets stand at the destination: what stood there before is gone. It is
// not stored, as what is stored allows for both.
func (l *Ledger) settle(key string, written []cluster.Committed) {
	p := l.pages[key]
	if p == nil {
		return
	}
	for _, o := range written {
		if m, ok := p.marks[o.Partition]; ok {
			p.marks[o.Partition] = Mark{m.Stretch, []int64{o.Offset}}
		}
	}
}

// noteVersion is the version of the stored form.
const noteVersion = 1

// note is the stored form: for each topic rows of partition, stretch and offsets.
type note struct {
	Version int                  `json:"v"`
	Topics  map[string][][]int64 `json:"t"`
}

func encode(marks Marks) ([]byte, error) {
	n := note{noteVersion, map[string][][]int64{}}
	for p, m := range marks {
		row := append([]int64{int64(p.Partition), int64(m.Stretch)}, m.Offsets...)
		n.Topics[p.Topic] = append(n.Topics[p.Topic], row)
	}
	for _, rows := range n.Topics {
		slices.SortFunc(rows, slices.Compare[[]int64])
	}
	return json.Marshal(n)
}

func decode(b []byte) (Marks, error) {
	var n note
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	if n.Version != noteVersion {
		return nil, fmt.Errorf("version %d is not known (this library writes %d)", n.Version, noteVersion)
	}
	marks := Marks{}
	for topic, rows := range n.Topics {
		for _, row := range rows {
			if len(row) < 3 || row[0] < 0 || row[0] > 1<<31-1 {
				return nil, fmt.Errorf("topic %s: no partition, stretch and offset: %v", topic, row)
			}
			marks[cluster.Partition{Topic: topic, Partition: int32(row[0])}] = Mark{int(row[1]), slices.Clone(row[2:])}
		}
	}
	return marks, nil
}
