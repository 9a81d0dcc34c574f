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

// filed is what stands in the file, as JSON.
type filed struct {
	Version    int                 `json:"version"`
	Identities map[string]Identity `json:"identities"`
	Topics     map[string]Own      `json:"topics"`
}

const (
	filesVersion = 1
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
	b, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.all = filed{Version: filesVersion}
		return nil
	case err != nil:
		return err
	}
	if err := json.Unmarshal(b, &f.all); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if f.all.Version != filesVersion {
		return fmt.Errorf("%s: version %d is not %d", name, f.all.Version, filesVersion)
	}
	return nil
}

// change writes what is there after a change, in the place of what was: either all of
// it is there after a crash, or nothing.
func (f *Files) change(ctx context.Context, do func(*filed)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	next := filed{Version: filesVersion, Identities: maps.Clone(f.all.Identities), Topics: maps.Clone(f.all.Topics)}
	if next.Identities == nil {
		next.Identities = make(map[string]Identity)
	}
	if next.Topics == nil {
		next.Topics = make(map[string]Own)
	}
	do(&next)
	b, err := json.MarshalIndent(next, "", "\t")
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

func (i fileIdentities) Load(_ context.Context, name string) (Identity, bool, error) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	id, ok := i.f.all.Identities[name]
	return id, ok, nil
}

func (i fileIdentities) Save(ctx context.Context, name string, id Identity) error {
	return i.f.change(ctx, func(all *filed) { all.Identities[name] = id })
}

func (i fileIdentities) Delete(ctx context.Context, name string) error {
	return i.f.change(ctx, func(all *filed) { delete(all.Identities, name) })
}

type fileOverrides struct{ f *Files }

func (o fileOverrides) Load(_ context.Context, topic string) (Own, bool, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	own, ok := o.f.all.Topics[topic]
	return maps.Clone(own), ok, nil
}

func (o fileOverrides) Save(ctx context.Context, all map[string]Own) error {
	if len(all) == 0 {
		return ctx.Err()
	}
	return o.f.change(ctx, func(now *filed) {
		for topic, own := range all {
			now.Topics[topic] = maps.Clone(own)
		}
	})
}

func (o fileOverrides) Delete(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return ctx.Err()
	}
	return o.f.change(ctx, func(now *filed) {
		for _, topic := range topics {
			delete(now.Topics, topic)
		}
	})
}

func (o fileOverrides) Topics(context.Context) ([]string, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return slices.Sorted(maps.Keys(o.f.all.Topics)), nil
}
