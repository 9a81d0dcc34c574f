package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/mirror/cluster"
)

// groupsOn commits the same offset for many groups.
func groupsOn(t *testing.T, c *Cluster, n int) (names []string) {
	t.Helper()
	ctx := within(t, 60*time.Second)
	for i := range n {
		names = append(names, fmt.Sprint("group-", i))
	}
	slices.Sort(names)
	errs := make([]error, n)
	together(n, func(i int) {
		errs[i] = c.Commit(ctx, names[i], []cluster.Committed{{Partition: p0, Offset: 7, Metadata: names[i]}})
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return names
}

// hang keeps one broker from answering a kind of request until the test ends.
func hang(t *testing.T, f *kfake.Cluster, key kmsg.Key, broker int32) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	f.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if f.CurrentNode() == broker {
			f.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
}

// TestGroupsWithHoles is C7.11 and C7.13: a broker that does not answer takes away its groups
// only, and what it takes away is said.
func TestGroupsWithHoles(t *testing.T) {
	f := fake(t, 3, "t", 1)
	c := open(t, f.ListenAddrs())
	names := groupsOn(t, c, 60)
	all, err := c.Groups(within(t, 20*time.Second))
	if err != nil || len(all) != 60 {
		t.Fatalf("%d groups, %v", len(all), err)
	}
	silent := f.CoordinatorFor(names[0])
	hang(t, f, kmsg.ListGroups, silent)
	hang(t, f, kmsg.OffsetFetch, silent)
	want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return f.CoordinatorFor(n) == silent })

	some, err := c.Groups(within(t, time.Second))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("groups of broker ", silent)) {
		t.Errorf("a broker that is silent: %v", err)
	}
	var got []string
	for _, g := range some {
		got = append(got, g.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	answers, err := c.Committed(within(t, time.Second), names)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		switch coordinator := f.CoordinatorFor(names[i]); {
		case coordinator == silent && a.Err == nil:
			t.Errorf("%s of a broker that is silent: %+v", names[i], a)
		case coordinator != silent && (a.Err != nil || len(a.Offsets) != 1 || a.Offsets[0].Metadata != names[i]):
			t.Errorf("%s: %+v", names[i], a)
		}
	}
}

// TestCommittedOfMany: more groups than one request asks for, and brokers that are asked for one at a
// time.
func TestCommittedOfMany(t *testing.T) {
	for name, opts := range map[string][]kfake.Opt{
		"many at a time": nil, "one at a time": {kfake.MaxVersions(kversion.V2_1_0())},
	} {
		t.Run(name, func(t *testing.T) {
			f := fake(t, 2, "t", 1, opts...)
			c := open(t, f.ListenAddrs())
			names := groupsOn(t, c, 3*groupsAtOnce)
			var asked atomic.Int64
			f.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
				f.KeepControl()
				asked.Add(1)
				return nil, nil, false
			})
			answers, err := c.Committed(within(t, 60*time.Second), names)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range answers {
				if a.Err != nil || len(a.Offsets) != 1 || a.Offsets[0].Metadata != names[i] {
					t.Fatalf("%s: %+v", names[i], a)
				}
			}
			want := int64(len(names))
			if opts == nil {
				want = 4 // two brokers, each with more than fit into one
			}
			if n := asked.Load(); n != want {
				t.Errorf("%d requests for %d groups, want %d", n, len(names), want)
			}
		})
	}
}

// TestCommittedFollowsTheCoordinator: a broker that is none any more is not asked a second time.
func TestCommittedFollowsTheCoordinator(t *testing.T) {
	f := fake(t, 3, "t", 1)
	c := open(t, f.ListenAddrs())
	names := groupsOn(t, c, 30)
	tries := 0
	f.ControlKey(int16(kmsg.OffsetFetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if tries++; tries > 2 {
			return nil, nil, false
		}
		req := kreq.(*kmsg.OffsetFetchRequest)
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range req.Groups {
			r := kmsg.NewOffsetFetchResponseGroup()
			r.Group, r.ErrorCode = g.Group, 16 // NOT_COORDINATOR
			resp.Groups = append(resp.Groups, r)
		}
		return resp, nil, true
	})
	answers, err := c.Committed(within(t, 20*time.Second), names)
	for i, a := range answers {
		if err != nil || a.Err != nil || len(a.Offsets) != 1 {
			t.Errorf("%s: %v, %+v", names[i], err, a)
		}
	}
	if tries < 3 {
		t.Errorf("asked %d times", tries)
	}
}

// TestShareOffsetsOld: a cluster that knows no share groups says so.
func TestShareOffsetsOld(t *testing.T) {
	f := fake(t, 1, "t", 1, kfake.MaxVersions(kversion.V3_9_0()))
	if _, err := open(t, f.ListenAddrs()).ShareOffsets(within(t, 20*time.Second), []string{"a", "b"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
