//go:build unix

package broker

import (
	"os"
	"syscall"
)

// claim locks a file until it is closed, or the process ends.
func claim(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
