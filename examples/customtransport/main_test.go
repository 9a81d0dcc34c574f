package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/transporttest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun is what a reader of the example sees.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), &out, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"platform opened with 0 topics", "platform opened with 1 topics",
		`orders-0 \[0,7\): [1-9] records equal; \d+ bytes`, `orders-1 \[0,14\): [1-9] records equal; \d+ bytes`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%q is missing:\n%s", want, &out)
		}
	}
}

// TestContract: the platform keeps what a destination promises.
func TestContract(t *testing.T) {
	transporttest.Run(t, transporttest.Options{Open: func(t testing.TB) transporttest.End {
		p, err := openPlatform(t.TempDir(), "platform")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return transporttest.End{
			Destination: newDestination(p), Unguarded: true,
			Another: func(testing.TB) transporttest.Destination { return newDestination(p) },
		}
	}})
}

// TestTornTail: what a crash has left half written is gone when the files are opened
// again, and what was whole is there.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	at := cluster.Partition{Topic: "t"}
	stretch := []fetcher.Stretch{{Mirror: "m", Partition: at}}
	open := func() (*platform, *destination, fetcher.End) {
		p, err := openPlatform(dir, "platform")
		if err != nil {
			t.Fatal(err)
		}
		d := newDestination(p)
		d.CreateTopics(t.Context(), []cluster.NewTopic{{Name: at.Topic, Partitions: 1}})
		ends, err := d.Ends(t.Context(), stretch)
		if err != nil || ends[0].Err != nil {
			t.Fatal(ends, err)
		}
		return p, d, ends[0]
	}
	p, d, _ := open()
	b := make([]byte, 80) // the journal looks at offsets and lengths only
	b[11], b[26] = byte(len(b)-lengthOffset), 4
	done := make(chan fetcher.Result, 1)
	d.Append(at, []cluster.Batch{{Next: 5, Bytes: b}}, nil, func(r fetcher.Result) { done <- r })
	if r := <-done; r.Err != nil {
		t.Fatal(r.Err)
	}
	p.Close()
	name := filepath.Join(dir, at.Topic, "0.log")
	whole, err := os.ReadFile(name)
	if err != nil || len(whole) != len(b) {
		t.Fatal(len(whole), err)
	}
	for cut := range len(b) {
		if err := os.WriteFile(name, append(whole[:len(b):len(b)], b[:cut]...), 0o644); err != nil {
			t.Fatal(err)
		}
		p, _, end := open()
		p.Close()
		if info, err := os.Stat(name); err != nil || info.Size() != int64(len(b)) || end.LogEnd != 5 || !end.Ours {
			t.Errorf("%d bytes of the next batch: %+v, file of %d bytes", cut, end, info.Size())
		}
	}
}
