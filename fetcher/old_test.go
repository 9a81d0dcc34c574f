package fetcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/zoo"
)

// aged are n records as messages of format 1 hold them, from base on.
func aged(base int64, n int, key []byte) (rs []batch.Record) {
	for o := base; o < base+int64(n); o++ {
		rs = append(rs, batch.Record{Offset: o, Timestamp: 1_700_000_000_000 + o, Key: key, Value: fmt.Append(nil, "old ", o)})
	}
	return rs
}

// wrapped are n messages of format 1 from base on, in one gzip wrapper.
func wrapped(base int64, n int) []byte {
	return zoo.OldWrapper(1, batch.Gzip, base, aged(base, n, nil), -1)
}

// oldLog is a log that was written before format 2 came: single messages at 0 to 4,
// wrappers at 5 and 15, then batches of our day.
func oldLog(l *sourceLog) {
	add := func(base, next int64, b []byte) {
		l.batches = append(l.batches, sourceBatch{base, next, -1, b})
	}
	for _, r := range aged(0, 5, []byte("k")) {
		add(r.Offset, r.Offset+1, zoo.OldMessage(1, r, false))
	}
	add(5, 15, wrapped(5, 10))
	add(15, 20, wrapped(15, 5))
	l.append(plain(20, 3, 5, 0))
}

func TestOldFormatsAreConverted(t *testing.T) {
	inWorld(t, Options{BudgetBytes: 1 << 20}, func(w *world) {
		p, other := part(0), part(1)
		w.src.create(p, 1)
		w.src.update(func() { oldLog(w.src.logs[p]) })
		w.assign(1, p, other)
		w.src.produce(other, 5, 5, 5)
		w.within(time.Minute, "all copied", func() bool { return w.dst.end(p) == 23 })
		w.same(time.Second, other)
		want := map[int64]string{}
		for o := range int64(20) {
			want[o] = fmt.Sprint("old ", o)
		}
		got := map[int64]string{}
		w.dst.with(p, func(l *destinationLog) {
			for _, b := range l.batches[:len(l.batches)-1] {
				if err := batch.Decode(b.bytes, func(r batch.Record) error {
					got[r.Offset] = string(r.Value)
					if r.Timestamp != 1_700_000_000_000+r.Offset || (r.Key == nil) != (r.Offset > 4) {
						t.Errorf("record at %d: %+v", r.Offset, r)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

// A message whose checksum is wrong stops its partition, at its offset, with what comes
// before it copied.
func TestOldFormatThatIsCorrupt(t *testing.T) {
	inWorld(t, Options{CorruptTries: 2}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.update(func() {
			l := w.src.logs[p]
			oldLog(l)
			l.batches[3].bytes[len(l.batches[3].bytes)-1] ^= 1
		})
		w.assign(1, p)
		if at := w.fails(p, cluster.ErrCorrupt); at.From != 3 {
			t.Errorf("failed at %v, want 3", at)
		}
		w.within(time.Second, "what comes before it", func() bool { return w.dst.end(p) == 3 })
	})
}

// What is converted when its partition leaves is given back; see live.
func TestLeavesWhileItIsConverted(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		p := part(0)
		w.src.create(p, 1)
		w.src.update(func() { oldLog(w.src.logs[p]) })
		w.f.converters <- struct{}{} // somebody else's turn
		w.f.converters <- struct{}{}
		w.assign(1, p)
		pass(time.Second)
		if w.dst.end(p) != 0 {
			t.Error("it was not converted yet")
		}
		w.remove(p)
		<-w.f.converters
		<-w.f.converters
		w.reassign(p)
		w.within(time.Minute, "all copied", func() bool { return w.dst.end(p) == 23 })
	})
}

func TestAlignComparesOldFormats(t *testing.T) {
	src, dst := logs(t, nil, nil)
	oldLog(src.logs[part(0)])
	var sets []byte
	for _, b := range src.logs[part(0)].batches[:6] {
		sets = append(sets, b.bytes...)
	}
	modern, err := new(Fetcher).modern(sets)
	if err != nil {
		t.Fatal(err)
	}
	dst.with(part(0), func(l *destinationLog) {
		l.end, l.ours = 15, true
		for w := batch.Walk(modern); w.Next(); {
			h := w.Header()
			l.batches = append(l.batches, sourceBatch{h.Base(), h.Next(), 0, h})
		}
	})
	got := aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]
	if got.Err != nil || got.Next != 15 {
		t.Errorf("%+v", got)
	}
	dst.with(part(0), func(l *destinationLog) {
		last := &l.batches[len(l.batches)-1]
		last.bytes = plain(last.base, 10, 5, 0)
	})
	if got = aligned(t.Context(), src, dst, dst, []Target{{Stretch: Stretch{Partition: part(0)}}})[0]; got.Err == nil {
		t.Error("other records were taken for the same")
	}
}
