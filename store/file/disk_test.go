package file

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

var (
	errDisk  = errors.New("no space left on device")
	errCrash = errors.New("the machine is off")
)

// fault is what happens in one step of a fakeDisk.
type fault int

const (
	works    fault = iota
	fails          // an error, nothing is done
	halfway        // an error, a write has written half of its bytes
	doneFail       // an error, and it is done
	crashes        // the machine goes off before
)

// fakeDisk is a folder that loses what was not synced, and fails where it is told to.
type fakeDisk struct {
	mu      sync.Mutex
	fault   func(step int, op string) fault // nil: all works
	gate    chan struct{}                   // when not nil, each create waits for a value
	step    int
	off     bool
	creates int
	live    map[string]*inode
	durable map[string]*inode
	changes []func(dir map[string]*inode) // to durable, not synced yet
}

type inode struct {
	data   []byte
	synced []byte
}

func newFakeDisk() *fakeDisk {
	return &fakeDisk{live: map[string]*inode{}, durable: map[string]*inode{}}
}

// do makes one step; the lock is held. Work that is done halfway is given as half.
func (d *fakeDisk) do(op string, work, half func()) error {
	if d.off {
		return errCrash
	}
	f := works
	if d.fault != nil {
		f = d.fault(d.step, op)
	}
	d.step++
	switch f {
	case fails:
		return errDisk
	case halfway:
		if half != nil {
			half()
		}
		return errDisk
	case doneFail:
		work()
		return errDisk
	case crashes:
		d.off = true
		return errCrash
	}
	work()
	return nil
}

// change makes a change of names, which a crash may forget.
func (d *fakeDisk) change(c func(dir map[string]*inode)) {
	c(d.live)
	d.changes = append(d.changes, c)
}

func (d *fakeDisk) list() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.live)), nil
}

func (d *fakeDisk) read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.live[name]; n != nil {
		return slices.Clone(n.data), nil
	}
	return nil, fs.ErrNotExist
}

func (d *fakeDisk) create(name string) (diskFile, error) {
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &inode{}
	err := d.do("create", func() {
		d.creates++
		d.change(func(dir map[string]*inode) { dir[name] = n })
	}, nil)
	if err != nil {
		return nil, err
	}
	return &fakeFile{d: d, n: n}, nil
}

func (d *fakeDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.do("rename", func() {
		d.change(func(dir map[string]*inode) {
			if n := dir[from]; n != nil {
				dir[to] = n
				delete(dir, from)
			}
		})
	}, nil)
}

func (d *fakeDisk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.do("remove", func() {
		d.change(func(dir map[string]*inode) { delete(dir, name) })
	}, nil)
}

func (d *fakeDisk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.do("sync folder", func() {
		d.durable, d.changes = maps.Clone(d.live), nil
	}, nil)
}

// images are the folders that the next start may find after a crash now: any number of
// the changes of names that were not synced has come to pass, and of what was written
// and not synced nothing, half or all.
func (d *fakeDisk) images() []*fakeDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*fakeDisk
	for k := range len(d.changes) + 1 {
		dir := maps.Clone(d.durable)
		for _, c := range d.changes[:k] {
			c(dir)
		}
		for part := range 3 {
			image := newFakeDisk()
			for name, n := range dir {
				image.live[name] = &inode{data: n.survives(part)}
			}
			image.durable = maps.Clone(image.live)
			out = append(out, image)
		}
	}
	return out
}

func (n *inode) survives(part int) []byte {
	switch part {
	case 0:
		return slices.Clone(n.synced)
	case 1:
		return slices.Clone(n.data[:(len(n.synced)+len(n.data))/2])
	}
	return slices.Clone(n.data)
}

type fakeFile struct {
	d *fakeDisk
	n *inode
}

func (f *fakeFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	written := 0
	write := func(part []byte) func() {
		return func() {
			f.n.data = append(f.n.data, part...)
			written = len(part)
		}
	}
	err := f.d.do("write", write(b), write(b[:len(b)/2]))
	return written, err
}

func (f *fakeFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.do("sync file", func() { f.n.synced = slices.Clone(f.n.data) }, nil)
}

func (f *fakeFile) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.do("close", func() {}, nil)
}
