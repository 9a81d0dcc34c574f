package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/broker"
)

func TestTruncateFlags(t *testing.T) {
	code, _, stderr := try(t, "truncate", "--salvage", "x")
	if code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--topic: is needed", "--partition: is needed", "--offset: is needed", "--join: is needed", "--destination"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not in:\n%s", want, stderr)
		}
	}
	code, _, stderr = try(t, "truncate", "--destination", "127.0.0.1:1", "--topic", "t", "--partition", "0", "--offset", "5", "--join", "900", "--join-state", filepath.Join(t.TempDir(), "state"))
	if code != exitUsage || !strings.Contains(stderr, "--join-listener: --join needs that between brokers") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestTruncateTells(t *testing.T) {
	base := broker.Truncation{Partition: cluster.Partition{Topic: "orders", Partition: 3}, Offset: 203, At: 200, LogStart: 10, LogEnd: 500,
		Leader: 2, Replicas: []int32{2, 1, 3}, InSync: []int32{2, 1}, Batches: 30, Bytes: 4096, Opened: []int64{4001}}
	tests := []struct {
		name   string
		f      truncateFlags
		change func(*broker.Truncation)
		want   string
	}{
		{"a dry run", truncateFlags{dryRun: true, salvage: "kept"}, nil, `
orders-3: log [10,500), broker 2 leads, replicas 1,2,3, in sync 1,2
orders-3: offset 203 lies in the batch that begins at 200, which goes as a whole
orders-3: to go: offsets [200,500), 300 in 30 batches, 4096 bytes
orders-3: a transaction of producer 4001 loses its marker and stays open: see kafka-transactions.sh abort
`},
		{"cut", truncateFlags{salvage: "kept"}, func(b *broker.Truncation) {
			b.Offset, b.Opened, b.Took, b.Leaderless = 200, nil, 612*time.Millisecond, 301*time.Millisecond
		}, `
orders-3: log [10,500), broker 2 leads, replicas 1,2,3, in sync 1,2
orders-3: gone: offsets [200,500), 300 in 30 batches, 4096 bytes
orders-3: in our hands for 612ms, without a real leader for 301ms
orders-3: saved in kept/truncate/orders-3
`},
		{"nothing", truncateFlags{}, func(b *broker.Truncation) { b.At = 500 }, `
orders-3: log [10,500), broker 2 leads, replicas 1,2,3, in sync 1,2
orders-3: nothing to cut: the log ends at 500
`},
		{"by an earlier call", truncateFlags{}, func(b *broker.Truncation) { b.Earlier = true }, `
orders-3: log [10,500), broker 2 leads, replicas 1,2,3, in sync 1,2
orders-3: was cut at offset 200 by an earlier call; what stands there by now was written later and stays
`},
		{"refused", truncateFlags{}, func(b *broker.Truncation) { b.Err = errors.New("no") }, `
orders-3: log [10,500), broker 2 leads, replicas 1,2,3, in sync 1,2
`},
		{"not found", truncateFlags{}, func(b *broker.Truncation) { b.Replicas, b.Err = nil, errors.New("no") }, "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			one := base
			if tt.change != nil {
				tt.change(&one)
			}
			var out bytes.Buffer
			tt.f.tell(&out, one)
			if got := "\n" + out.String(); got != tt.want {
				t.Errorf("got:%s\nwant:%s", got, tt.want)
			}
		})
	}
}
