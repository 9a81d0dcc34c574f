package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// contestants are what is measured, each in a process of its own.
var contestants = map[string]func(context.Context, job) (time.Duration, error){
	"mirror": runMirror,
	"joined": runJoined,
	"pipe":   runPipe,
	"loop":   runLoop,
}

// job tells a child what to do.
type job struct {
	Source, Destination []string // addresses
	Topic               string
	Codec               string
	Records             int   // over all partitions
	Bytes               int64 // of all batches
	Profile             string
	Fetch               fetcher.Options // of the mirror
	For                 time.Duration   // with it the child copies until then, not to the end

	// Of those that join the destination.
	Internal  []string // addresses
	ClusterID string
	Idle      int // partitions beside the one that is written to
}

// usage is what a child says about itself at its end.
type usage struct {
	CPU     float64 // seconds, user and system, since the process began
	System  float64 // seconds of CPU in the kernel
	Seconds float64 // of copying
	Peak    int64   // bytes of resident memory
	Read    int64   // bytes by read calls, as /proc counts them
	Reads   int64   // read calls
	Writes  int64   // write calls
}

// child makes a contestant fit for kafkatest.Child.
func child(run func(context.Context, job) (time.Duration, error)) func([]string) error {
	return func(args []string) error {
		var j job
		if err := json.Unmarshal([]byte(args[0]), &j); err != nil {
			return err
		}
		if j.Profile != "" {
			f, err := os.Create(j.Profile)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		took, err := run(ctx, j)
		if err != nil {
			return err
		}
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			return err
		}
		system := time.Duration(r.Stime.Nano()).Seconds()
		u := usage{CPU: system + time.Duration(r.Utime.Nano()).Seconds(), System: system, Seconds: took.Seconds()}
		u.Peak = procLine("status", "VmHWM: %d kB") << 10
		u.Read, u.Reads, u.Writes = procLine("io", "rchar: %d"), procLine("io", "syscr: %d"), procLine("io", "syscw: %d")
		line, err := json.Marshal(u)
		fmt.Printf("result %s\n", line)
		return err
	}
}

// procLine is a number from a file of /proc/self; 0 where there is none. The peak
// of memory is not taken from ru_maxrss: that begins with the peak of the process
// that started this one.
func procLine(file, format string) (n int64) {
	text, _ := os.ReadFile("/proc/self/" + file) // not everywhere
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, format, &n); err == nil {
			return n
		}
	}
	return 0
}

// spawn starts a child with a job.
func spawn(t testing.TB, name string, j job) *kafkatest.Process {
	t.Helper()
	arg, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return kafkatest.SpawnChild(t, name, string(arg))
}

// result waits for what a child says at its end, and for the end.
func result(ctx context.Context, t testing.TB, p *kafkatest.Process) (u usage) {
	t.Helper()
	line := p.WaitLine(ctx, "result ")
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "result ")), &u); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(ctx); err != nil {
		t.Fatalf("%v, its output:\n%s", err, strings.Join(p.Lines(), "\n"))
	}
	return u
}

// profileFor is the file for the profile of one run; empty without -profile.
func profileFor(name string, s set) string {
	if *profile == "" {
		return ""
	}
	return filepath.Join(*profile, fmt.Sprintf("%s-%s.pprof", name, s.name))
}
