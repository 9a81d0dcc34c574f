package kafkatest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// awkward has what consumers like to confuse.
func awkward() []*kgo.Record {
	at := time.UnixMilli(1_700_000_000_000)
	return []*kgo.Record{
		{Timestamp: at, Key: nil, Value: nil},
		{Timestamp: at, Key: []byte{}, Value: []byte{}},
		{Timestamp: at, Key: []byte("k\t1"), Value: []byte("a\nb\\c\x00\xff")},
		{Timestamp: at, Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "a", Value: []byte("1\n2")}, {Key: "e", Value: []byte{}}, {Key: "n"}}},
	}
}

// TestOracles: both foreign consumers of both releases show exactly what was
// produced.
func TestOracles(t *testing.T) {
	t.Parallel()
	const at = "1700000000000"
	want := []Line{
		{Offset: 0, Key: Null, Value: Null},
		{Offset: 1},
		{Offset: 2, Key: `k\x091`, Value: `a\x0Ab\x5Cc\x00\xFF`},
		{Offset: 3, Key: "k", Value: "v", Headers: `a:1\x0A2,e:,n:` + Null},
	}
	for _, version := range Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx := withTimeout(t, 4*time.Minute)
			c := Shared(t, Options{Version: version})
			c.CreateTopic(t, "oracle", 1, 1, nil)
			if err := c.Client(t, kgo.DefaultProduceTopic("oracle")).ProduceSync(ctx, awkward()...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			java, kcat := make([]Line, len(want)), make([]Line, len(want))
			for i, l := range want {
				java[i], kcat[i] = l, l
				java[i].Time, kcat[i].Time = "CreateTime:"+at, at
			}
			kcat[3].Headers = `a=1\x0A2,e=,n=NULL`
			spec := ConsumeSpec{Topic: "oracle", Partition: AllPartitions, Committed: true}
			if diff := cmp.Diff(java, c.JavaConsume(ctx, t, spec)); diff != "" {
				t.Errorf("java (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(kcat, c.KcatConsume(ctx, t, spec)); diff != "" {
				t.Errorf("kcat (-want +got):\n%s", diff)
			}
			spec = ConsumeSpec{Topic: "oracle", From: 1, Max: 2}
			if diff := cmp.Diff(java[1:3], c.JavaConsume(ctx, t, spec)); diff != "" {
				t.Errorf("java, offsets 1 and 2 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(kcat[1:3], c.KcatConsume(ctx, t, spec)); diff != "" {
				t.Errorf("kcat, offsets 1 and 2 (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLoad: 100,000 records of all kinds, read back by both consumers alike.
func TestLoad(t *testing.T) {
	t.Parallel()
	const records, partitions = 100_000, 4
	ctx := withTimeout(t, 4*time.Minute)
	c := Shared(t, Options{})
	c.CreateTopic(t, "load", partitions, 1, nil)
	start := time.UnixMilli(1_700_000_000_000)
	c.Load(ctx, t, LoadSpec{Topic: "load", Partitions: partitions, Records: records,
		Codecs: []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(),
			kgo.Lz4Compression(), kgo.ZstdCompression()},
		Mixed: true, Idempotent: true, Keys: true, Headers: true, Nulls: true, BatchBytes: 100_000,
		Timestamps: func(i int) time.Time { return start.Add(time.Duration(i) * time.Millisecond) }})
	spec := ConsumeSpec{Topic: "load", Partition: AllPartitions}
	java, kcat := c.JavaConsume(ctx, t, spec), c.KcatConsume(ctx, t, spec)
	if len(java) != records || len(kcat) != records {
		t.Fatalf("%d records by java, %d by kcat", len(java), len(kcat))
	}
	for i, j := range java {
		k, n := kcat[i], int(j.Offset)*partitions+int(j.Partition)
		if j.Partition != k.Partition || j.Offset != k.Offset || j.Key != k.Key || j.Value != k.Value {
			t.Fatalf("java %v\nkcat %v", j, k)
		}
		if want := fmt.Sprintf("i:%d,empty:,null:%s", n, Null); j.Headers != want {
			t.Fatalf("%v, headers want %q", j, want)
		}
		if want := fmt.Sprintf("CreateTime:%d", start.UnixMilli()+int64(n)); j.Time != want {
			t.Fatalf("%v, time want %s", j, want)
		}
	}
}
