package kafkatest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// userHZ is the unit of the times in /proc/pid/stat, fixed by the Linux ABI.
const userHZ = 100

// procCPU returns the processor time of a running process, zero if unknown.
func procCPU(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return parseStat(stat)
}

// parseStat reads utime and stime, fields 14 and 15 (proc(5)). The name in
// field 2 may hold spaces and parentheses, so counting starts at the last ")".
func parseStat(stat []byte) time.Duration {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(string(f), 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ
}
