//go:build !linux

package kafkatest

import "syscall"

// boundAttr does nothing here: only Linux can bind a child to its parent's life.
func boundAttr() *syscall.SysProcAttr { return nil }
