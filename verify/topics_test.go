package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// logs is a cluster in memory. It counts how many partitions are read at once.
type logs struct {
	mu           sync.Mutex
	of           map[cluster.Partition]*log
	now, highest int
}

func (l *logs) at(p cluster.Partition) (*log, error) {
	if one := l.of[p]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("%v: %w", p, cluster.ErrUnknownTopic)
}

func (l *logs) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	one, err := l.at(p)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.now++
	l.highest = max(l.highest, l.now)
	l.mu.Unlock()
	<-time.After(time.Second) // the bubble's time
	l.mu.Lock()
	l.now--
	l.mu.Unlock()
	return one.Read(ctx, p, offset, maxBytes)
}

func (l *logs) LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error) {
	one, err := l.at(p)
	if err != nil {
		return cluster.Offsets{}, err
	}
	return one.LogOffsets(ctx, p)
}

func TestTopics(t *testing.T) {
	for parallelism, highest := range map[int]int{0: 2, 1: 1, 5: 5, 100: 19} { // one of 20 has no destination to read
		synctest.Test(t, func(t *testing.T) {
			source, destination := &logs{of: map[cluster.Partition]*log{}}, &logs{of: map[cluster.Partition]*log{}}
			var partitions []cluster.Partition
			for i := range 20 {
				p := cluster.Partition{Topic: "foo", Partition: int32(i)}
				partitions = append(partitions, p)
				source.of[p] = cut(records(30), 10, batch.LZ4)
				switch i {
				case 7:
					destination.of[p] = cut(with(30, func(rs []batch.Record) []batch.Record { rs[3].Timestamp++; return rs }), 10, batch.LZ4)
				case 9: // not there
				default:
					destination.of[p] = cut(records(30), 15, batch.Zstd)
				}
			}
			reports, err := Topics(t.Context(), source, destination, partitions, &Options{Parallelism: parallelism, ChunkBytes: 1})
			if !errors.Is(err, cluster.ErrUnknownTopic) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "destination: foo-9") {
				t.Errorf("error %v", err)
			}
			for i, r := range reports {
				if r.Partition != partitions[i] || r.Equal != (i != 7 && i != 9) || (r.Error != "") != (i == 9) || (r.Different == 1) != (i == 7) {
					t.Errorf("%d: %+v", i, r)
				}
			}
			if source.highest != highest {
				t.Errorf("parallelism %d: %d partitions read at once, want %d", parallelism, source.highest, highest)
			}
		})
	}
	if reports, err := Topics(t.Context(), nil, nil, nil, nil); len(reports) != 0 || err != nil {
		t.Errorf("no partitions: %v, %v", reports, err)
	}
}

// While one chunk is compared, the next is read, on both sides at once.
func TestReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, destination := &logs{of: map[cluster.Partition]*log{foo: cut(records(10), 1, batch.None)}}, &logs{of: map[cluster.Partition]*log{foo: cut(records(10), 1, batch.None)}}
		began := time.Now()
		o := &Options{ChunkBytes: 1, Progress: func(Progress) { <-time.After(time.Second) }}
		if r, err := Partition(t.Context(), source, destination, foo, o); err != nil || !r.Equal {
			t.Fatal(r, err)
		}
		// 10 reads of a second each; the comparison's own seconds pass beside them.
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestStrings(t *testing.T) {
	long := strings.Repeat("x", 500)
	for _, c := range []struct {
		got, want string
	}{
		{render(nil, []byte("a")), `null`},
		{render([]byte{}, nil), `""`},
		{render([]byte("abc"), []byte("abd")), `"abc"`},
		{render([]byte(long+"abc"), []byte(long+"abd")), `"xxxxxxabc" from byte 494 of 503`},
		{render([]byte(long), nil), `"` + long[:40] + `" from byte 0 of 500`},
		{render([]byte(long), []byte(long)), `"xxxxxxxx" from byte 492 of 500`},
		{renderHeaders([]batch.RecordHeader{{Key: []byte("a"), Value: []byte("1\n")}, {Key: []byte("b")}}), `["a"="1\n" "b"=null]`},
		{abridge(long+"a"+long, long+"b"+long), "..." + long[:8] + "a" + long[:71] + "..."},
		{abridge(long, long), "..." + long[:80]},
		{renderTime(1_700_000_000_123), "1700000000123 (2023-11-14T22:13:20.123Z)"},
		{Difference{4, Missing, "s", ""}.String(), "offset 4: missing in the destination; source has s"},
		{Difference{4, Extra, "", "d"}.String(), "offset 4: extra in the destination: d"},
		{Difference{4, Headers, "s", "d"}.String(), "offset 4: headers differ: source s, destination d"},
		{renderRecord(batch.Record{Value: []byte("v"), Timestamp: -1}), `key null, value "v", timestamp -1 (1969-12-31T23:59:59.999Z)`},
		{Report{Partition: foo, Compared: cluster.Span{From: 1, To: 4}, Records: 3, Equal: true, EndsEqual: true}.String(), "foo-3 [1,4): 3 records equal"},
		{Report{Partition: foo, Error: "boom"}.String(), "foo-3 [0,0): not compared: boom"},
		{Report{Partition: foo, Different: 2, Differences: []Difference{{4, Extra, "", "d"}}}.String(),
			"foo-3 [0,0): 2 differences, 0 records equal; offset 4: extra in the destination: d"},
		{Report{Partition: foo, Equal: true, Source: cluster.Offsets{LogStart: 1, HighWatermark: 2}}.String(),
			"foo-3 [0,0): 0 records equal; source is [1,2), destination [0,0)"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}
