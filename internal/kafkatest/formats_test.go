package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// oldFormats: one log of an old release holds all three message formats, each as the
// topic's settings said when it was written, and foreign consumers read it whole.
func oldFormats(t *testing.T, c *Cluster) {
	t.Helper()
	const topic = "formats"
	formats := []string{"0.9.0", "0.10.2", "1.0"}
	c.CreateTopic(t, topic, 1, 1, map[string]string{"message.format.version": formats[0]})
	cl := c.Client(t)
	var want []int8 // by offset
	for magic, version := range formats {
		c.Configure(t, topic, map[string]string{"message.format.version": version})
		// The brokers learn of it some time: a record is written until one has the format.
		Eventually(t, 30*time.Second, func(ctx context.Context) error {
			c.Load(t.Context(), t, LoadSpec{Topic: topic, First: len(want), Records: 1})
			_, got := rawFormat(ctx, t, cl, topic, int64(len(want)))
			if want = append(want, got); int(got) != magic {
				return fmt.Errorf("format %d, want %d", got, magic)
			}
			return nil
		})
		c.Load(t.Context(), t, LoadSpec{Topic: topic, First: len(want), Records: 20, Codecs: []kgo.CompressionCodec{kgo.Lz4Compression()}})
		want = append(want, slices.Repeat([]int8{int8(magic)}, 20)...)
	}
	var got []int8
	for at := int64(0); at < int64(len(want)); {
		next, magic := rawFormat(t.Context(), t, cl, topic, at)
		got = append(got, slices.Repeat([]int8{magic}, int(next-at))...)
		at = next
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("formats by offset (-want +got):\n%s", diff)
	}
	for who, lines := range map[string][]Line{
		"java": c.JavaConsume(t.Context(), t, ConsumeSpec{Topic: topic}),
		"kcat": c.KcatConsume(t.Context(), t, ConsumeSpec{Topic: topic}),
	} {
		if len(lines) != len(want) || lines[len(lines)-1].Offset != int64(len(want)-1) {
			t.Errorf("%s read %d records, want %d", who, len(lines), len(want))
		}
	}
}

// rawFormat is the format (magic) of what a fetch gives first, and the offset after it.
func rawFormat(ctx context.Context, t testing.TB, cl *kgo.Client, topic string, offset int64) (next int64, magic int8) {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.SessionEpoch = 1<<20, 1, 500, -1
	one := kmsg.NewFetchRequestTopic()
	one.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
	one.Partitions = append(one.Partitions, p)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("fetch at %d: %v", offset, err)
	}
	b := resp.Topics[0].Partitions[0].RecordBatches
	if len(b) < 61 {
		t.Fatalf("fetch at %d gives %d bytes", offset, len(b))
	}
	// A compressed message of the old formats has the offset of its last record.
	if next, magic = int64(binary.BigEndian.Uint64(b))+1, int8(b[16]); magic == 2 {
		next += int64(binary.BigEndian.Uint32(b[23:]))
	}
	return next, magic
}
