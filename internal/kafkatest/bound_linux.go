package kafkatest

import "syscall"

// boundAttr has the kernel kill the process when the thread that started it
// ends, hence also when this whole process is killed.
func boundAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
