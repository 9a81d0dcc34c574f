package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Files keeps identities and topics' own settings in a folder that one process has at a
// time: Identities and Overrides for a host without a store of its own.
type Files struct {
	dir  string
	lock *os.File
	mu   sync.Mutex
	all  filed
}

// filed is what stands in the file.
type filed struct {
	identities map[int32]Kept
	topics     map[string]Own
	missed     map[string]Missed
	lifted     *int64
}

// filedText is its form, as JSON.
type filedText struct {
	Version    int               `json:"version"`
	Identities []storedIdentity  `json:"identities"`
	Topics     map[string]Own    `json:"topics"`
	Missed     map[string]Missed `json:"missed,omitempty"`
	Lifted     *int64            `json:"lifted,omitempty"` // the first producer id that has another
}

// filedFirst is the form of version 1.
type filedFirst struct {
	Version    int                 `json:"version"`
	Identities map[string]Identity `json:"identities"`
	Topics     map[string]Own      `json:"topics"`
}

const (
	filesVersion = 2
	filesName    = "joined.json"
)

// ErrInUse: another process has the folder.
var ErrInUse = errors.New("the folder is in use by another process")

// OpenFiles makes the folder if there is none, and locks it until Close: ErrInUse.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "joined.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	f := &Files{dir: dir, lock: lock}
	if err := claim(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %w", dir, ErrInUse, err), lock.Close())
	}
	if err := f.read(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// Close gives the folder to others.
func (f *Files) Close() error { return f.lock.Close() }

func (f *Files) read() error {
	name := filepath.Join(f.dir, filesName)
	f.all = filed{identities: make(map[int32]Kept), topics: make(map[string]Own), missed: make(map[string]Missed)}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = f.all.decode(b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *filed) decode(b []byte) error {
	var head struct{ Version int }
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	switch head.Version {
	case 1:
		var text filedFirst
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		for name, id := range text.Identities {
			f.identities[id.Broker] = Kept{Identity: id, Name: name}
		}
		maps.Copy(f.topics, text.Topics)
		return nil
	case filesVersion:
	default:
		return fmt.Errorf("version %d is not %d", head.Version, filesVersion)
	}
	var text filedText
	err := json.Unmarshal(b, &text)
	for _, s := range text.Identities {
		kept, bad := s.kept()
		err = errors.Join(err, bad)
		kept.Holder = "" // whoever it was has ended: the folder is ours
		f.identities[kept.Broker] = kept
	}
	maps.Copy(f.topics, text.Topics)
	maps.Copy(f.missed, text.Missed)
	f.lifted = text.Lifted
	return err
}

// change writes what is there after a change, in the place of what was: either all of
// it is there after a crash, or nothing.
func (f *Files) change(ctx context.Context, do func(*filed)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	next := filed{maps.Clone(f.all.identities), maps.Clone(f.all.topics), cloneMissed(f.all.missed), f.all.lifted}
	do(&next)
	text := filedText{Version: filesVersion, Identities: []storedIdentity{}, Topics: next.topics, Missed: next.missed, Lifted: next.lifted}
	for _, id := range slices.Sorted(maps.Keys(next.identities)) {
		text.Identities = append(text.Identities, next.identities[id].stored())
	}
	b, err := json.MarshalIndent(text, "", "\t")
	if err == nil {
		err = replace(f.dir, filesName, b)
	}
	if err == nil {
		f.all = next
	}
	return err
}

// replace writes a file beside the old one and then over it.
func replace(dir, name string, b []byte) error {
	temporary, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(b)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Identities is the Identities that the folder has.
func (f *Files) Identities() Identities { return fileIdentities{f} }

// Overrides is the Overrides that the folder has.
func (f *Files) Overrides() Overrides { return fileOverrides{f} }

type fileIdentities struct{ f *Files }

func (i fileIdentities) All(ctx context.Context) ([]Kept, error) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	return slices.Collect(maps.Values(i.f.all.identities)), ctx.Err()
}

func (i fileIdentities) Swap(ctx context.Context, was, now *Kept) (ok bool, err error) {
	failed := i.f.change(ctx, func(all *filed) { ok, err = swapKept(all.identities, was, now) })
	if failed != nil {
		return false, failed
	}
	return ok, err
}

type fileOverrides struct{ f *Files }

func (o fileOverrides) Load(_ context.Context, topics ...string) (map[string]Own, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return some(o.f.all.topics, topics), nil
}

func (o fileOverrides) Save(ctx context.Context, all map[string]Own) error {
	if len(all) == 0 {
		return ctx.Err()
	}
	return o.f.change(ctx, func(now *filed) {
		for topic, own := range all {
			now.topics[topic] = maps.Clone(own)
		}
	})
}

func (o fileOverrides) Delete(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return ctx.Err()
	}
	return o.f.change(ctx, func(now *filed) {
		for _, topic := range topics {
			delete(now.topics, topic)
			delete(now.missed, topic)
		}
	})
}

func (o fileOverrides) Missed(context.Context) (map[string]Missed, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return cloneMissed(o.f.all.missed), nil
}

func (o fileOverrides) SaveMissed(ctx context.Context, all map[string]Missed) error {
	if len(all) == 0 {
		return ctx.Err()
	}
	return o.f.change(ctx, func(now *filed) { replaceMissed(now.missed, all) })
}

func (o fileOverrides) Topics(context.Context) ([]string, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return slices.Sorted(maps.Keys(o.f.all.topics)), nil
}

func (o fileOverrides) Lifted(context.Context) (from int64, ok bool, err error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	if o.f.all.lifted == nil {
		return 0, false, nil
	}
	return *o.f.all.lifted, true, nil
}

func (o fileOverrides) SaveLifted(ctx context.Context, from int64) error {
	return o.f.change(ctx, func(now *filed) { now.lifted = &from })
}
