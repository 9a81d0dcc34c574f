package main

import (
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// BenchmarkVerifyGigabyte runs the command over a gigabyte of records on each side,
// on a real broker: in the same codec, in others, and with checksums. It tells the
// processor time of this program and the most memory that its heap took.
//
//	go test -run '^$' -bench VerifyGigabyte -benchtime 1x .
func BenchmarkVerifyGigabyte(b *testing.B) {
	k := kafkatest.Start(b, kafkatest.Options{})
	const records, size = 1 << 20, 1000
	load := func(topic string, batch int32, codec kgo.CompressionCodec) {
		k.CreateTopic(b, topic, 2, 1, nil)
		k.Load(b.Context(), b, kafkatest.LoadSpec{
			Topic: topic, Partitions: 2, Records: records, ValueSize: size, Codecs: []kgo.CompressionCodec{codec}, BatchBytes: batch, Keys: true,
			Timestamps: func(i int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(i)) },
		})
	}
	load("plain", 1_000_000, kgo.NoCompression())
	load("copy.plain", 200_000, kgo.NoCompression())
	load("packed", 1_000_000, kgo.ZstdCompression())
	load("copy.packed", 1_000_000, kgo.Lz4Compression())
	for _, c := range []struct {
		name string
		args []string
	}{
		{"uncompressed, other batches", []string{"--topics", "plain"}},
		{"zstd and lz4", []string{"--topics", "packed"}},
		{"zstd and lz4, checksums", []string{"--topics", "packed", "--checksums"}},
		{"sample of 1%", []string{"--topics", "packed", "--sample", "1%"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			args := append([]string{"verify", "--source", k.Bootstrap()[0], "--destination", k.Bootstrap()[0], "--destination-prefix", "copy."}, c.args...)
			b.SetBytes(records * size)
			runtime.GC()
			stop, peak := make(chan struct{}), make(chan uint64)
			go func() { peak <- highest(stop) }()
			before := processor(b)
			for b.Loop() {
				if code, out, err := try(b, args...); code != exitOK {
					b.Fatalf("exit code %d\n%s%s", code, out, err)
				}
			}
			b.ReportMetric((processor(b)-before).Seconds()/float64(b.N), "cpu-s/op")
			close(stop)
			b.ReportMetric(float64(<-peak)/1e6, "MB-heap")
		})
	}
}

// processor is the time that this process has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// highest is the most memory that the heap held until stop.
func highest(stop <-chan struct{}) (most uint64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		most = max(most, s[0].Value.Uint64())
		select {
		case <-stop:
			return most
		case <-tick.C:
		}
	}
}
