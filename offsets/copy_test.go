package offsets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

var errMembers = fmt.Errorf("%w: %w", cluster.ErrRefused, cluster.ErrMembers)

// TestCopy: a group that cannot be read, is refused or has members does not hide the others
// (I10, I11).
func TestCopy(t *testing.T) {
	moved, forbidden := errors.New("not coordinator"), errors.New("forbidden")
	offset := CommittedAnswer{Offsets: []cluster.Committed{at(0, 5, "m")}}
	source := &side{of: map[string]CommittedAnswer{"unread": {Err: moved}, "far": {Offsets: []cluster.Committed{at(0, 500), at(1, 1)}}}}
	for _, name := range []string{"app", "console-consumer-1", "new", "busy", "joins", "unread", "unread-there", "same", "far", "forbidden", "other-kind", "held"} {
		source.groups = append(source.groups, cluster.Group{Name: name})
		if _, set := source.of[name]; !set {
			source.of[name] = offset
		}
	}
	source.groups = append(source.groups, cluster.Group{Name: "queue", Type: "share"})
	destination := &side{
		groups: []cluster.Group{
			{Name: "busy", State: "Reconciling"}, {Name: "joins", State: "Empty"}, {Name: "other-kind", Type: "share", State: "Empty"},
			{Name: "same", State: "Stable"}, {Name: "app", State: "Dead"},
		},
		of:     map[string]CommittedAnswer{"same": offset, "unread-there": {Err: moved}, "held": {Offsets: []cluster.Committed{at(0, 9)}}},
		refuse: map[string]error{"joins": errMembers, "busy": errors.New("was tried"), "forbidden": forbidden},
	}
	report, err := Copier{Source: source, Destination: destination, Logs: logs(10)}.Copy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]cluster.Committed{"app": {at(0, 5, "m")}, "new": {at(0, 5, "m")}, "far": {at(0, 10), at(1, 1)}}
	if diff := cmp.Diff(want, destination.committed); diff != "" {
		t.Error(diff)
	}
	for name, kind := range map[string]error{"unread": moved, "unread-there": moved, "forbidden": forbidden, "other-kind": cluster.ErrRefused} {
		if err := report.Failed[name]; !errors.Is(err, kind) || !strings.Contains(err.Error(), "group "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(report.Failed) != 4 {
		t.Errorf("failed %v", report.Failed)
	}
	report.Failed = nil
	place := []Place{{part(0), 5, -1, -1}}
	wanted := Report{
		Matched: 11, Excluded: []string{"console-consumer-1"}, Groups: 3, Offsets: 4,
		Clamped: map[string][]Place{"far": {{part(0), 500, -1, -1}}}, Held: map[string][]Place{"held": {{part(0), 5, 9, -1}}},
		Active: map[string][]Place{"busy": place, "joins": place},
	}
	if diff := cmp.Diff(wanted, report); diff != "" {
		t.Error(diff)
	}
	if slices.Contains(source.asked, "queue") || slices.Contains(source.asked, "console-consumer-1") {
		t.Errorf("asked for %v", source.asked)
	}
}

// TestCopyAgain: the ledger tells a group that moved by itself from one that was moved, also in the
// next process; without anything to write nobody is asked whether groups have members.
func TestCopyAgain(t *testing.T) {
	store := &notes{}
	source := &side{groups: []cluster.Group{{Name: "g"}}, of: map[string]CommittedAnswer{}}
	destination := &side{}
	ledger := NewLedger(store, "m")
	for i, step := range []struct {
		source, moves int64 // moves: by itself, -1 when it does not
		forget        bool
		want          int64
		swaps, looks  int
		held          int
	}{
		{source: 50, moves: -1, want: 50, swaps: 1, looks: 1},
		{source: 50, moves: -1, want: 50, swaps: 1, looks: 1},
		{source: 20, moves: -1, want: 20, swaps: 2, looks: 2},
		{source: 30, moves: -1, forget: true, want: 30, swaps: 3, looks: 3},
		{source: 40, moves: 70, forget: true, want: 70, swaps: 3, looks: 3, held: 1},
		{source: 70, moves: -1, want: 70, swaps: 4, looks: 3},
		{source: 60, moves: -1, want: 60, swaps: 5, looks: 4},
		{source: 65, moves: 10, want: 10, swaps: 5, looks: 4, held: 1},
	} {
		if step.moves >= 0 {
			destination.of["g"] = CommittedAnswer{Offsets: []cluster.Committed{at(0, step.moves)}}
		}
		if step.forget {
			ledger = NewLedger(store, "m")
		}
		source.of["g"] = CommittedAnswer{Offsets: []cluster.Committed{at(0, step.source)}}
		report, err := Copier{Source: source, Destination: destination, Ledger: ledger, Logs: logs(100)}.Copy(t.Context())
		if got := destination.of["g"].Offsets[0].Offset; err != nil || got != step.want || len(report.Held) != step.held {
			t.Errorf("step %d: at %d, want %d; %v, %+v", i, got, step.want, err, report)
		}
		if store.swaps != step.swaps || destination.looks != step.looks {
			t.Errorf("step %d: %d swaps and %d looks, want %d and %d", i, store.swaps, destination.looks, step.swaps, step.looks)
		}
	}
}

// TestCopyCutShort is C7.9 with a process that dies between commit and answer: the next one knows that
// what stands there is its own.
func TestCopyCutShort(t *testing.T) {
	store, lost := &notes{}, errors.New("connection lost")
	source := &side{groups: []cluster.Group{{Name: "g"}}, of: map[string]CommittedAnswer{"g": {Offsets: []cluster.Committed{at(0, 50)}}}}
	destination := &side{}
	copyNow := func() Report {
		report, err := Copier{Source: source, Destination: destination, Ledger: NewLedger(store, "m"), Logs: logs(100)}.Copy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	copyNow()
	source.of["g"] = CommittedAnswer{Offsets: []cluster.Committed{at(0, 80)}}
	destination.commit = func(_ context.Context, group string) error {
		destination.of[group] = CommittedAnswer{Offsets: []cluster.Committed{at(0, 80)}}
		return lost
	}
	if report := copyNow(); !errors.Is(report.Failed["g"], lost) {
		t.Fatalf("%+v", report)
	}
	destination.commit = nil
	source.of["g"] = CommittedAnswer{Offsets: []cluster.Committed{at(0, 60)}}
	if report := copyNow(); report.Offsets != 1 || len(report.Held) > 0 || destination.of["g"].Offsets[0].Offset != 60 {
		t.Errorf("%+v, at %v", report, destination.of["g"])
	}
}

// TestCopyInPart: a group of which a side knows nothing on one partition is copied on the others, and left
// alone there (I10, I12).
func TestCopyInPart(t *testing.T) {
	down := errors.New("no leader")
	both := CommittedAnswer{Offsets: []cluster.Committed{at(0, 5), at(1, 6)}}
	none := func(n int32, err error) map[cluster.Partition]error { return map[cluster.Partition]error{part(n): err} }
	source := &side{groups: []cluster.Group{{Name: "theirs"}, {Name: "ours"}, {Name: "elsewhere"}}, of: map[string]CommittedAnswer{
		"theirs": {Offsets: []cluster.Committed{at(1, 6)}, Unknown: none(0, down)}, "ours": both, "elsewhere": {Offsets: both.Offsets, Unknown: none(7, down)},
	}}
	destination := &side{of: map[string]CommittedAnswer{"ours": {Unknown: none(1, down)}}}
	report, err := Copier{Source: source, Destination: destination, Logs: logs(10)}.Copy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]cluster.Committed{"theirs": {at(1, 6)}, "ours": {at(0, 5)}, "elsewhere": both.Offsets}
	if diff := cmp.Diff(want, destination.committed); diff != "" {
		t.Error(diff)
	}
	if len(report.Failed) != 2 || !errors.Is(report.Failed["theirs"], down) || !errors.Is(report.Failed["ours"], down) || !strings.Contains(report.Failed["ours"].Error(), "t-1") {
		t.Errorf("failed %v", report.Failed)
	}
}

// TestCopyShares: share groups go their own way where both sides know it, and are left out
// where one does not.
func TestCopyShares(t *testing.T) {
	groups := []cluster.Group{{Name: "queue", Type: "share"}, {Name: "app", Type: "consumer"}}
	made := func() (from, to shares) {
		from = shares{&side{groups: groups, of: map[string]CommittedAnswer{"app": {Offsets: []cluster.Committed{at(0, 5)}}}}, &side{}}
		from.share.of = map[string]CommittedAnswer{"queue": {Offsets: []cluster.Committed{at(0, 3)}}}
		return from, shares{&side{}, &side{}}
	}
	from, to := made()
	report, err := Copier{Source: from, Destination: to, Logs: logs(10)}.Copy(t.Context())
	if err != nil || report.Groups != 2 || report.Matched != 2 {
		t.Errorf("%v, %+v", err, report)
	}
	if diff := cmp.Diff(map[string][]cluster.Committed{"queue": {at(0, 3)}}, to.share.committed); diff != "" {
		t.Error(diff)
	}
	for _, end := range []string{"source", "destination"} {
		from, to := made()
		map[string]*side{"source": from.share, "destination": to.share}[end].ofErr = fmt.Errorf("old: %w", errors.ErrUnsupported)
		report, err := Copier{Source: from, Destination: to, Logs: logs(10)}.Copy(t.Context())
		if err != nil || report.Groups != 1 || report.Matched != 1 || to.committed["app"] == nil {
			t.Errorf("%s: %v, %+v", end, err, report)
		}
	}
}

func TestCopyFails(t *testing.T) {
	down := errors.New("down")
	one := []cluster.Group{{Name: "app"}}
	some := map[string]CommittedAnswer{"app": {Offsets: []cluster.Committed{at(0, 5)}}}
	for _, tc := range []struct {
		name                string
		source, destination *side
		logs                error
		store               error
		text                string
	}{
		{name: "groups", source: &side{groupsErr: down}, destination: &side{}, text: "source groups"},
		{name: "source offsets", source: &side{groups: one, ofErr: down}, destination: &side{}, text: "source committed"},
		{name: "destination offsets", source: &side{groups: one}, destination: &side{ofErr: down}, text: "destination committed"},
		{name: "logs", source: &side{groups: one, of: some}, destination: &side{}, logs: down, text: "destination logs"},
		{name: "store", source: &side{groups: one, of: some}, destination: &side{}, store: down, text: "committed before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Copier{Source: tc.source, Destination: tc.destination, Ledger: NewLedger(&notes{err: tc.store}, "m")}
			if c.Logs = logs(10); tc.logs != nil {
				c.Logs = func(context.Context, []cluster.Partition) (map[cluster.Partition]Log, error) { return nil, tc.logs }
			}
			report, err := c.Copy(t.Context())
			if !errors.Is(err, down) || !strings.Contains(err.Error(), tc.text) || report.Groups != 0 || report.Failed == nil || tc.destination.committed != nil {
				t.Errorf("error %v, report %+v", err, report)
			}
			if tc.store == nil {
				return
			}
			c.Last = true // what nobody will know later is needed now
			if report, err := c.Copy(t.Context()); err != nil || report.Groups != 1 {
				t.Errorf("the last copy: %v, %+v", err, report)
			}
		})
	}
	none := &side{groups: []cluster.Group{{Name: "q", Type: "share"}}, ofErr: down}
	if _, err := (Copier{Source: none, Destination: none}).Copy(t.Context()); err != nil {
		t.Errorf("nobody to ask for, got %v", err)
	}
}

// TestCopyHoles: what is known of a part of a cluster is copied, and the rest said. Nothing that is missing
// in a listing goes (C7.13).
func TestCopyHoles(t *testing.T) {
	down := errors.New("broker 2 is down")
	offset := CommittedAnswer{Offsets: []cluster.Committed{at(0, 5)}}
	source := &side{groups: []cluster.Group{{Name: "app"}}, groupsErr: down, of: map[string]CommittedAnswer{"app": offset}}
	destination := &side{groupsErr: down, of: map[string]CommittedAnswer{"unseen": offset}}
	report, err := Copier{Source: source, Destination: destination, Logs: logs(10)}.Copy(t.Context())
	if err != nil || report.Groups != 1 || len(report.Warnings) != 2 || !errors.Is(errors.Join(report.Warnings...), down) {
		t.Errorf("%v, %+v", err, report)
	}
	if len(destination.committed) != 1 || destination.of["unseen"].Offsets[0].Offset != 5 {
		t.Errorf("committed %v", destination.committed)
	}
}

// TestCopyAtATime: many groups go some at a time, and all of them go.
func TestCopyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, destination := &side{of: map[string]CommittedAnswer{}}, &side{}
		for i := range 2*portion + 1 {
			name := fmt.Sprint("group ", i)
			source.groups = append(source.groups, cluster.Group{Name: name})
			source.of[name] = CommittedAnswer{Offsets: []cluster.Committed{at(0, int64(i))}}
		}
		var mu sync.Mutex
		var under, most int
		destination.commit = func(context.Context, string) error {
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			under--
			mu.Unlock()
			return nil
		}
		report, err := Copier{Source: source, Destination: destination, Logs: logs(1e6)}.Copy(t.Context())
		if err != nil || report.Groups != 2*portion+1 || len(destination.committed) != 2*portion+1 || most != parallel {
			t.Errorf("error %v, %d groups, %d at a time", err, report.Groups, most)
		}
	})
}

// TestCopyEnds: a copy that is called off begins no more commits and waits for those that are
// under way, with a limit.
func TestCopyEnds(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			source, destination := &side{of: map[string]CommittedAnswer{}}, &side{}
			for i := range 2 * parallel {
				name := fmt.Sprint(i)
				source.groups = append(source.groups, cluster.Group{Name: name})
				source.of[name] = CommittedAnswer{Offsets: []cluster.Committed{at(0, 1)}}
			}
			destination.commit = func(ctx context.Context, _ string) error {
				took := 2 * time.Second
				if hangs {
					took = time.Hour
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(took):
					return nil
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			report, err := Copier{Source: source, Destination: destination, Logs: logs(10), Patience: time.Minute}.Copy(ctx)
			want, wrote := 2*time.Second, parallel
			if hangs {
				want, wrote = time.Minute, 0
			}
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != want || report.Groups != wrote {
				t.Errorf("hangs %v: %v after %v, %d groups", hangs, err, took, report.Groups)
			}
		})
	}
}
