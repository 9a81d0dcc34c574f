package live

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// oldFormats is a topic that has lived through all message formats, each kept as it was
// written: partition 0 as it is, partition 1 for the cleaner.
func (f *filler) oldFormats(ctx context.Context) (Topic, error) {
	t, configs, err := f.make(ctx, "old", "message formats 0, 1 and 2, plain and wrapped, compacted", 2,
		with(forCleaner, "message.format.version", "0.9.0"), Format0, Format1, OldCompressed, Committed)
	if err != nil {
		return t, err
	}
	for format, version := range []string{"0.9.0", "0.10.2", "2.0"} {
		configs["message.format.version"] = version
		if err := f.w.alter(ctx, t.Name, configs); err != nil {
			return t, err
		}
		for i := range t.Partitions {
			p := cluster.Partition{Topic: t.Name, Partition: i}
			if err := f.takes(ctx, p, int8(format)); err != nil {
				return t, err
			}
			if format == 2 {
				_, err = f.w.replay(ctx, p, f.log(50+uint64(i), zoo.Options{Settled: true, Keyed: true, Tame: true, Batches: f.Batches / 3}))
			} else {
				err = f.messages(ctx, p, int8(format))
			}
			if err != nil {
				return t, err
			}
		}
	}
	return t, f.settle(ctx, &t, configs)
}

// takes writes until the broker keeps a format: it learns of a setting some time.
func (f *filler) takes(ctx context.Context, p cluster.Partition, format int8) error {
	return until(ctx, func() error {
		at, err := f.send(ctx, p, format, []batch.Record{{Timestamp: 1_700_000_000_000, Key: fmt.Append(nil, "first of format ", format), Value: []byte("of a format")}}, batch.None)
		if err != nil {
			return err
		}
		raw, err := f.Reader.Read(ctx, p, at, 1<<10)
		if err != nil {
			return err
		}
		for w := batch.Walk(raw); w.Next(); {
			if h := w.Header(); h.Base() >= at && h.Magic() != format {
				return fmt.Errorf("%w: %v offset %d is kept in format %d", errNotYet, p, at, h.Magic())
			}
		}
		return nil
	})
}

// send writes records in a format.
func (f *filler) send(ctx context.Context, p cluster.Partition, format int8, rs []batch.Record, codec batch.Codec) (int64, error) {
	if format == 2 {
		return f.w.produce(ctx, p, nil, batch.Encode(batch.Spec{Records: rs, Codec: codec, LeaderEpoch: -1}))
	}
	old, err := newWriter(f.Client, int16(format)+1)
	if err != nil {
		return 0, err
	}
	defer old.close()
	if codec != batch.None {
		return old.produce(ctx, p, nil, zoo.OldWrapper(format, codec, 0, rs, -1))
	}
	var set []byte
	for _, r := range rs {
		set = append(set, zoo.OldMessage(format, r, false)...)
	}
	return old.produce(ctx, p, nil, set)
}

// messages writes plain and wrapped messages, whose keys come again.
func (f *filler) messages(ctx context.Context, p cluster.Partition, format int8) error {
	number := 0
	for round := range 12 {
		var rs []batch.Record
		for i := range 1 + round {
			number++
			r := batch.Record{Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(number), Key: fmt.Appendf(nil, "format %d, key %d", format, number%17), Value: fmt.Appendf(nil, "format %d, %d", format, number)}
			switch number % 7 {
			case 1:
				r.Value = nil
			case 2:
				r.Value = []byte{}
			case 3:
				r.Key = []byte{0xff, byte(format), byte(number % 5)}
			}
			rs = append(rs, r)
		}
		if _, err := f.send(ctx, p, format, rs, batch.Codec(round%4)); err != nil {
			return err
		}
	}
	return nil
}
