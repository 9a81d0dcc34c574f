package mirror_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/transport/kafka"
)

// undialled is a cluster whose every connection is an error of the test.
func undialled(t *testing.T) *kafka.Cluster {
	t.Helper()
	k, err := kafka.New(kafka.Config{
		Bootstrap: []string{"nobody.invalid:9092"},
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			t.Errorf("dialled %s", address)
			return nil, errors.New("not to be dialled")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

// TestNewConnectsToNothing: neither New nor what may be called before Run dials.
func TestNewConnectsToNothing(t *testing.T) {
	m, err := mirror.New("dr", undialled(t), undialled(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, patience)
	calls := map[string]error{
		"start": m.Start(ctx, "orders"), "pause": m.Pause(ctx, "orders"), "resume": m.Resume(ctx, "orders"),
		"recover": m.Recover(ctx, "orders"), "stop": m.Stop(ctx, "orders"),
	}
	for name, err := range calls {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantIs(t, m.Promote(ctx, "orders"), mirror.ErrNotRunning)
	if s := m.Status(); s.Mirror != "dr" || m.Name() != "dr" || s.Running || s.Health != "ok" || len(m.Topics()) != 0 {
		t.Errorf("status before Run: %s", show(s))
	}
	if _, ok := m.Topic("orders"); ok {
		t.Error("a topic is known before Run")
	}
}

// TestNewReportsEveryFault: one error names every bad field.
func TestNewReportsEveryFault(t *testing.T) {
	_, err := mirror.New("a/b", nil, nil, &mirror.Options{
		Topics:       mirror.Topics{Include: []string{"a(", "__consumer_offsets", ""}, Exclude: []string{"[z"}},
		SyncInterval: -1, GroupTimeout: -1, AlignmentTimeout: -1, RetryMin: -1, RetryMax: -2,
		Fetch: fetcher.Options{
			MaxWait: -1, BackoffMin: -1, BackoffMax: -1, RetryBudget: -1, StallAfter: -1,
			PartitionBytes: -1, ResponseBytes: -1, BudgetBytes: -1, CorruptTries: -1,
		},
	})
	var e *mirror.Error
	if !errors.As(err, &e) || e.Op != "new" || e.Mirror != "a/b" || e.Offset != -1 {
		t.Fatalf("error %#v", err)
	}
	for _, want := range []string{
		"name:", "source:", "destination:", `include "a("`, `"__consumer_offsets"`, `exclude "[z"`, "SyncInterval:", "GroupTimeout:",
		"AlignmentTimeout:", "RetryMin:", "RetryMax:", "Fetch.MaxWait:", "Fetch.BackoffMin:", "Fetch.BackoffMax:",
		"Fetch.RetryBudget:", "Fetch.StallAfter:", "Fetch.PartitionBytes:", "Fetch.ResponseBytes:", "Fetch.BudgetBytes:", "Fetch.CorruptTries:",
		"empty entry",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %q:\n%v", want, err)
		}
	}
	wantIs(t, err, mirror.ErrInternalTopic)
}

func TestNames(t *testing.T) {
	k := undialled(t)
	for name, ok := range map[string]bool{
		"dr": true, "a.b_c-9": true, strings.Repeat("x", 249): true, "...": true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "ä": false, "a/b": false, "a*": false,
	} {
		if _, err := mirror.New(name, k, k, nil); (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

// TestInternalTopics is C9.5: internal topics are refused by type when they are
// asked for, and no pattern finds them.
func TestInternalTopics(t *testing.T) {
	k := undialled(t)
	_, err := mirror.New("dr", k, k, &mirror.Options{Topics: mirror.Topics{Include: []string{"__consumer_offsets"}}})
	wantIs(t, err, mirror.ErrInternalTopic)
	m, err := mirror.New("dr", k, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, m.Start(context.Background(), "__transaction_state"), mirror.ErrInternalTopic)

	p := newPair(t, 1, "__internal", "plain")
	r := run(t, p, quick(".*"))
	r.reach(t, at("plain", 0), coordinator.StateMirroring)
	if got := topicNames(r.Mirror); !cmp.Equal(got, []string{"plain"}) {
		t.Errorf("topics %v", got)
	}
}

func topicNames(m *mirror.Mirror) []string {
	var names []string
	for _, t := range m.Topics() {
		names = append(names, t.Name)
	}
	return names
}

// TestFilters are C9.1 (a literal is no expression) and C9.3 (exclusion wins).
func TestFilters(t *testing.T) {
	for _, tc := range []struct {
		name             string
		include, exclude []string
		there, want      []string
		missing          []string
	}{
		{
			name: "C9.1 literal", include: []string{"audit.events"},
			there: []string{"audit.events", "audit-events", "audit_events.x"}, want: []string{"audit.events"},
		},
		{
			name: "C9.3 exclude wins", include: []string{"prod-.*"}, exclude: []string{"prod-x", "prod-tmp.*"},
			there: []string{"prod-x", "prod-xy", "prod-tmp1", "prod-a", "other"}, want: []string{"prod-a", "prod-xy"},
		},
		{
			name: "missing", include: []string{"there", "not-there"},
			there: []string{"there"}, want: []string{"there"}, missing: []string{"not-there"},
		},
		{name: "nothing matches", include: []string{"nope.*"}, there: []string{"x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			net := kafkatest.NewNetwork(t)
			a, b := newCluster(t, "A", kfake.SeedTopics(1, tc.there...)), newCluster(t, "B")
			o := quick(tc.include...)
			o.Topics.Exclude = tc.exclude
			r := start(t, newMirror(t, connect(t, a, net), connect(t, b, net), o))
			kafkatest.Eventually(t, patience, func(context.Context) error {
				if r.Status().Synced == nil || r.Status().States[coordinator.StateMirroring] != len(tc.want) {
					return errors.New(r.Status().SyncError)
				}
				return nil
			})
			if diff := cmp.Diff(tc.want, topicNames(r.Mirror)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.missing, r.Status().Missing); diff != "" {
				t.Error(diff)
			}
			for _, name := range tc.there {
				created := b.TopicInfo(name) != nil
				if wanted := strings.Contains(" "+strings.Join(tc.want, " ")+" ", " "+name+" "); created != wanted {
					t.Errorf("%s at the destination: %v", name, created)
				}
			}
		})
	}
}
