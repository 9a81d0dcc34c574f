//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package file

import "os"

// lock takes the lock of a folder by making a file that must not be there. It is left
// behind by a process that was killed: then an operator has to remove it.
func lock(path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case os.IsExist(err):
		return nil, ErrLocked
	case err != nil:
		return nil, err
	}
	return func() error {
		err := f.Close()
		if e := os.Remove(path); err == nil {
			err = e
		}
		return err
	}, nil
}
