package offsets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

func part(n int32) cluster.Partition { return cluster.Partition{Topic: "t", Partition: n} }

func at(n int32, offset int64, metadata ...string) cluster.Committed {
	return cluster.Committed{Partition: part(n), Offset: offset, Metadata: strings.Join(metadata, "")}
}

func TestDiff(t *testing.T) {
	within := map[cluster.Partition]cluster.Offsets{part(0): {LogStart: 100, HighWatermark: 900}, part(1): {LogStart: 0, HighWatermark: 50}}
	for _, tc := range []struct {
		name                string
		source, destination []cluster.Committed
		want                []cluster.Committed
		clamped             int
	}{
		{name: "new", source: []cluster.Committed{at(0, 500)}, want: []cluster.Committed{at(0, 500)}},
		{name: "C7.1 above the high watermark", source: []cluster.Committed{at(0, 1000)}, want: []cluster.Committed{at(0, 900)}, clamped: 1},
		{
			name: "C7.1 caught up later", source: []cluster.Committed{at(0, 890)}, destination: []cluster.Committed{at(0, 880)},
			want: []cluster.Committed{at(0, 890)},
		},
		{name: "C7.3 null offsets", source: []cluster.Committed{at(0, -1), at(1, 7)}, want: []cluster.Committed{at(1, 7)}},
		{name: "C7.15 below the log start", source: []cluster.Committed{at(0, 50)}, want: []cluster.Committed{at(0, 100)}},
		{name: "unchanged", source: []cluster.Committed{at(0, 500)}, destination: []cluster.Committed{at(0, 500)}},
		{name: "clamped to what is there", source: []cluster.Committed{at(0, 5000)}, destination: []cluster.Committed{at(0, 900)}, clamped: 1},
		{
			name: "metadata kept, and a change by itself", source: []cluster.Committed{at(0, 500, "a"), at(1, 5, "b")},
			destination: []cluster.Committed{at(0, 500), at(1, 5, "b")}, want: []cluster.Committed{at(0, 500, "a")},
		},
		{name: "backwards", source: []cluster.Committed{at(0, 300)}, destination: []cluster.Committed{at(0, 500)}, want: []cluster.Committed{at(0, 300)}},
		{name: "other partitions are left alone", source: []cluster.Committed{at(2, 5)}, destination: []cluster.Committed{at(2, 9)}},
		{name: "the ends themselves", source: []cluster.Committed{at(0, 100), at(1, 50)}, want: []cluster.Committed{at(0, 100), at(1, 50)}},
		{name: "not at the source any more", destination: []cluster.Committed{at(0, 500)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := slices.Clone(tc.source)
			got := Diff("g", tc.source, tc.destination, within)
			if diff := cmp.Diff(Change{Group: "g", Offsets: tc.want, Clamped: tc.clamped}, got); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(asked, tc.source) {
				t.Error("the question was changed")
			}
		})
	}
}

// side is a cluster's groups in memory.
type side struct {
	groups           []cluster.Group
	of               map[string]CommittedAnswer
	groupsErr, ofErr error
	refuse           map[string]error

	mu          sync.Mutex
	asked       []string
	committed   map[string][]cluster.Committed
	under, most int
	full        chan struct{} // closed when as many as may are under way; commits wait for it
}

func (s *side) Groups(context.Context) ([]cluster.Group, error) { return s.groups, s.groupsErr }

func (s *side) Committed(_ context.Context, names []string) ([]CommittedAnswer, error) {
	s.asked = names
	out := make([]CommittedAnswer, len(names))
	for i, n := range names {
		out[i] = s.of[n]
	}
	return out, s.ofErr
}

func (s *side) Commit(_ context.Context, group string, offsets []cluster.Committed) error {
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	if s.full != nil && s.most == parallel {
		select {
		case <-s.full:
		default:
			close(s.full)
		}
	}
	s.mu.Unlock()
	if s.full != nil {
		<-s.full
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	if err := s.refuse[group]; err != nil {
		return err
	}
	if s.committed == nil {
		s.committed = map[string][]cluster.Committed{}
	}
	s.committed[group] = offsets
	return nil
}

// TestCopy: console consumers and share groups are left out; a group that cannot
// be read or is refused does not hide the others (I10, I11).
func TestCopy(t *testing.T) {
	busy, moved := errors.New("group has members"), errors.New("not coordinator")
	offset := CommittedAnswer{Offsets: []cluster.Committed{at(0, 5, "m")}}
	source := &side{
		groups: []cluster.Group{
			{Name: "app"}, {Name: "console-consumer-1"}, {Name: "console-consumer-x"}, {Name: "queue", Type: "share"},
			{Name: "new", Type: "consumer"}, {Name: "busy"}, {Name: "unread"}, {Name: "unread-there"}, {Name: "same"}, {Name: "far"},
		},
		of: map[string]CommittedAnswer{
			"app": offset, "new": offset, "console-consumer-x": offset, "busy": offset, "unread": {Err: moved}, "unread-there": offset,
			"same": offset, "far": {Offsets: []cluster.Committed{at(0, 500), at(1, 1)}},
		},
	}
	destination := &side{
		of:     map[string]CommittedAnswer{"same": offset, "unread-there": {Err: moved}},
		refuse: map[string]error{"busy": busy},
	}
	within := map[cluster.Partition]cluster.Offsets{part(0): {HighWatermark: 10}, part(1): {HighWatermark: 10}}
	report, err := Copier{source, destination}.Copy(context.Background(), within)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]cluster.Committed{
		"app": {at(0, 5, "m")}, "new": {at(0, 5, "m")}, "console-consumer-x": {at(0, 5, "m")}, "far": {at(0, 10), at(1, 1)},
	}
	if diff := cmp.Diff(want, destination.committed); diff != "" {
		t.Error(diff)
	}
	if report.Groups != 4 || report.Offsets != 5 || report.Clamped != 1 || len(report.Failed) != 3 {
		t.Errorf("report %+v", report)
	}
	for name, kind := range map[string]error{"busy": busy, "unread": moved, "unread-there": moved} {
		if err := report.Failed[name]; !errors.Is(err, kind) || !strings.Contains(err.Error(), "group "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if slices.Contains(source.asked, "queue") || slices.Contains(source.asked, "console-consumer-1") {
		t.Errorf("asked for %v", source.asked)
	}
}

func TestCopyFails(t *testing.T) {
	down := errors.New("down")
	one := []cluster.Group{{Name: "app"}}
	for _, tc := range []struct {
		name                string
		source, destination *side
		text                string
	}{
		{"groups", &side{groupsErr: down}, &side{}, "source groups"},
		{"source offsets", &side{groups: one, ofErr: down}, &side{}, "source committed"},
		{"destination offsets", &side{groups: one}, &side{ofErr: down}, "destination committed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, err := Copier{tc.source, tc.destination}.Copy(context.Background(), nil)
			if !errors.Is(err, down) || !strings.Contains(err.Error(), tc.text) || report.Groups != 0 || report.Failed == nil {
				t.Errorf("error %v, report %+v", err, report)
			}
		})
	}
	none := &side{groups: []cluster.Group{{Name: "q", Type: "share"}}, ofErr: down}
	if _, err := (Copier{none, none}).Copy(context.Background(), nil); err != nil {
		t.Errorf("nobody to ask for, got %v", err)
	}
}

// TestCopyAtATime: many groups go some at a time, and all of them go.
func TestCopyAtATime(t *testing.T) {
	source, destination := &side{of: map[string]CommittedAnswer{}}, &side{full: make(chan struct{})}
	for i := range 100 {
		name := fmt.Sprint("group ", i)
		source.groups = append(source.groups, cluster.Group{Name: name})
		source.of[name] = CommittedAnswer{Offsets: []cluster.Committed{at(0, int64(i))}}
	}
	report, err := Copier{source, destination}.Copy(context.Background(), map[cluster.Partition]cluster.Offsets{part(0): {HighWatermark: 1000}})
	if err != nil || report.Groups != 100 || len(destination.committed) != 100 || destination.most != parallel {
		t.Errorf("error %v, report %+v, %d at a time", err, report, destination.most)
	}
}
