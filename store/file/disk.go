package file

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// disk is the folder. Tests put one in its place that fails and forgets.
type disk interface {
	list() ([]string, error)
	read(name string) ([]byte, error)
	// create makes an empty file, also where there is one.
	create(name string) (diskFile, error)
	rename(from, to string) error
	// remove forgets a file; one that is not there is no error.
	remove(name string) error
	// sync makes what create, rename and remove have done outlast a crash.
	sync() error
}

type diskFile interface {
	io.WriteCloser
	Sync() error
}

// folder is a folder of the operating system.
type folder string

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

func (f folder) list() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (f folder) read(name string) ([]byte, error) { return os.ReadFile(f.path(name)) }

func (f folder) create(name string) (diskFile, error) {
	return os.OpenFile(f.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (f folder) rename(from, to string) error { return os.Rename(f.path(from), f.path(to)) }

func (f folder) remove(name string) error {
	if err := os.Remove(f.path(name)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func (f folder) sync() error { return syncFolder(string(f)) }

// syncFolder syncs a folder's names. Windows has no such call; its file system logs
// renames by itself.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// makeFolder makes the folder and those above it, so that they outlast a crash.
func makeFolder(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return syncFolder(parent)
}
