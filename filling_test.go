package mirror_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
)

// TestStatusShowsFilling: what a destination fills for long is seen while it does, in
// alignment and in MIRRORING, and nowhere else.
func TestStatusShowsFilling(t *testing.T) {
	source, destination := filling("slow", "one")
	source.offsets = func(p cluster.Partition) cluster.Offsets {
		if p.Topic == "slow" {
			return cluster.Offsets{LogStart: 5_000_000, HighWatermark: 5_000_000}
		}
		return cluster.Offsets{HighWatermark: 30_000}
	}
	slow := fetcher.Filling{To: 5_000_000, At: 1_000_000, Rate: 1000, Measured: true, Bytes: 2_750_000, Until: time.Unix(2_000_000_000, 0)}
	one := fetcher.Filling{From: 3, To: 20_003, At: 7}
	short := fetcher.Filling{From: 3, To: 10_002, At: 7}
	inFilling := map[string]*fetcher.Filling{"slow": &slow}
	destination.fills = func(p cluster.Partition) (fetcher.Filling, bool) {
		if f := inFilling[p.Topic]; f != nil {
			return *f, true
		}
		return fetcher.Filling{}, false
	}
	destination.startAt = func(ctx context.Context, _ cluster.Partition) error {
		<-ctx.Done()
		return ctx.Err()
	}
	inBubble(t, source, destination, everything(), func(t *testing.T, m *mirror.Mirror) {
		pass(time.Second)
		wantState(t, m, "slow", coordinator.StateLogAlignment)
		wantState(t, m, "one", coordinator.StateMirroring)
		look := func(topic string, want *fetcher.Filling, counted int) mirror.PartitionStatus {
			t.Helper()
			s := stateOf(t, m, topic)
			if diff := cmp.Diff(want, s.Filling); diff != "" {
				t.Errorf("%s (-want +got):\n%s", topic, diff)
			}
			if got := m.Status().Filling; got != counted {
				t.Errorf("%d partitions are counted, want %d", got, counted)
			}
			return s
		}
		if s := look("slow", &slow, 1); s.DestinationEnd != 1_000_000 {
			t.Errorf("%s", show(s))
		}
		look("one", nil, 1)
		inFilling["one"] = &one
		if s := look("one", &one, 2); s.DestinationEnd != 7 || s.Lag != 29_993 {
			t.Errorf("%s", show(s))
		}
		inFilling["one"] = &short
		look("one", nil, 1)

		b, err := json.Marshal(stateOf(t, m, "slow"))
		if want := `"filling":{"from":0,"to":5000000,"at":1000000,"rate":1000,"measured":true,"bytes":2750000,"until":`; err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s, %v: want %s", b, err, want)
		}
		if err := m.Pause(context.Background(), "one"); err != nil {
			t.Fatal(err)
		}
		inFilling["one"] = &one
		look("one", nil, 1)
	})
}
