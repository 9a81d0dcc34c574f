package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/preflight"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/kafka"
)

// guarded is a cluster with an authorizer: "mirror" and whoever comes without a login may do everything, "copier"
// what he is granted.
func guarded(t *testing.T) *kafkatest.Cluster {
	return kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:mirror;User:ANONYMOUS",
		"listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
			"user_mirror=mirror-secret user_copier=c;",
	}})
}

// grant is a right of the copier.
type grant struct {
	side           preflight.Side
	resource, name string
	operation      string
	severity       preflight.Severity // of the finding when it is missing
	told           string             // as the report names it
}

func (g grant) rule() cluster.Binding {
	return cluster.Binding{ResourceType: g.resource, Name: g.name, PatternType: "LITERAL", Principal: "User:copier", Host: "*", Operation: g.operation, Permission: "ALLOW"}
}

// TestPreflightRights: with all the rights of the list the report is clean, nothing has been
// changed, and the mirror runs; each one that is missing is named, by itself (C8.5).
func TestPreflightRights(t *testing.T) {
	a, b := guarded(t), guarded(t)
	const topic, state = "orders", statekafka.DefaultTopic
	grants := []grant{
		{preflight.Source, "TOPIC", topic, "READ", preflight.Blocks, "Read"},
		{preflight.Source, "TOPIC", topic, "DESCRIBE_CONFIGS", preflight.Blocks, "DescribeConfigs"},
		{preflight.Source, "CLUSTER", "kafka-cluster", "DESCRIBE", preflight.Warns, "Describe"},
		{preflight.Source, "TOPIC", state, "READ", preflight.Blocks, "Read"},
		{preflight.Destination, "TOPIC", topic, "CREATE", preflight.Blocks, "Create"},
		{preflight.Destination, "TOPIC", topic, "READ", preflight.Blocks, "Read"},
		{preflight.Destination, "TOPIC", topic, "WRITE", preflight.Blocks, "Write"},
		{preflight.Destination, "TOPIC", topic, "ALTER", preflight.Warns, "Alter"},
		{preflight.Destination, "TOPIC", topic, "DELETE", preflight.Warns, "Delete"},
		{preflight.Destination, "TOPIC", topic, "ALTER_CONFIGS", preflight.Loses, "AlterConfigs"},
		{preflight.Destination, "TOPIC", state, "CREATE", preflight.Blocks, "Create"},
		{preflight.Destination, "TOPIC", state, "READ", preflight.Blocks, "Read"},
		{preflight.Destination, "TOPIC", state, "WRITE", preflight.Blocks, "Write"},
		{preflight.Destination, "TOPIC", state, "DESCRIBE_CONFIGS", preflight.Blocks, "DescribeConfigs"},
		{preflight.Destination, "CLUSTER", "kafka-cluster", "ALTER", preflight.Warns, "Alter"},
		{preflight.Destination, "GROUP", "billing", "READ", preflight.Loses, "Read"},
	}
	login := func(user, password string) func(*kafka.Config) {
		return func(c *kafka.Config) { c.SASL = plain.Mechanism{Username: user, Password: password} }
	}
	admins := map[preflight.Side]*kafka.Cluster{preflight.Source: connect(t, a, login("mirror", "mirror-secret")), preflight.Destination: connect(t, b, login("mirror", "mirror-secret"))}
	a.CreateTopic(t, topic, 2, 1, nil)
	put(t, a, topic, 0, 100)
	if err := admins[preflight.Source].Commit(t.Context(), "billing", []cluster.Committed{{Partition: cluster.Partition{Topic: topic}, Offset: 7}}); err != nil {
		t.Fatal(err)
	}
	change := func(g grant, by func(*kafka.Cluster, context.Context, []cluster.Binding) []error) {
		t.Helper()
		if err := by(admins[g.side], t.Context(), []cluster.Binding{g.rule()})[0]; err != nil {
			t.Fatal(err)
		}
	}
	add, take := (*kafka.Cluster).CreateACLs, (*kafka.Cluster).DeleteACLs
	for _, g := range grants {
		change(g, add)
	}
	change(grant{side: preflight.Source, resource: "GROUP", name: "billing", operation: "DESCRIBE"}, add)
	// Describe is in most others: so that it is there without them.
	described := []grant{}
	for _, side := range []preflight.Side{preflight.Source, preflight.Destination} {
		for _, name := range []string{topic, state} {
			described = append(described, grant{side: side, resource: "TOPIC", name: name, operation: "DESCRIBE"})
			change(described[len(described)-1], add)
		}
	}

	source, destination := connect(t, a, login("copier", "c")), connect(t, b, login("copier", "c"))
	store := func(c *kafkatest.Cluster) *statekafka.Store {
		s, err := statekafka.New(statekafka.Config{Bootstrap: c.Bootstrap(), SASL: plain.Mechanism{Username: "copier", Password: "c"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	o := mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, Store: store(b), Positions: store(a), GroupInterval: time.Second}
	report := func(want ...string) {
		t.Helper()
		var last string
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		kafkatest.Eventually(t, 10*time.Second, func(ctx context.Context) error { // brokers hear of rules a little later
			r, err := mirror.Preflight(ctx, "guarded", source, destination, &o)
			if err != nil {
				return err
			}
			got := []string{}
			for _, f := range r.Findings {
				line := fmt.Sprintf("%s %s: %s", f.Severity, f.Cluster, f.What)
				if f.Permission != nil {
					line = fmt.Sprintf("%s %s: %s on %s %v", f.Severity, f.Cluster, f.Permission.Operation, f.Permission.Resource, append(f.Topics, f.Groups...))
				}
				got = append(got, line)
			}
			if last = cmp.Diff(append([]string{}, want...), got); last != "" {
				return errors.New("other findings than expected")
			}
			return nil
		})
	}
	began := time.Now()
	report()
	for _, g := range grants {
		change(g, take)
		kind, on := map[string]string{"TOPIC": "topic", "CLUSTER": "cluster", "GROUP": "group"}[g.resource], []string{g.name}
		if kind == "cluster" {
			on = nil
		}
		want := []string{fmt.Sprintf("%s %s: %s on %s %v", g.severity, g.side, g.told, kind, on)}
		switch {
		case g.told == "AlterConfigs": // DescribeConfigs is in it
			want = append([]string{"blocks destination: DescribeConfigs on topic [orders]"}, want...)
		case kind == "cluster" && g.told == "Alter": // and in this Describe
			want = append(want, "warns destination: Describe on cluster []")
		}
		report(want...)
		change(g, add)
	}
	report()
	for _, g := range []grant{grants[0], described[0]} {
		change(g, take)
	}
	report("blocks source: Describe on topic [orders]")
	for _, g := range []grant{grants[0], described[0]} {
		change(g, add)
	}
	report()
	t.Logf("%d reports and more in %v", len(grants)+2, time.Since(began))
	all, err := admins[preflight.Destination].Topics(t.Context())
	if err != nil || slices.ContainsFunc(all, func(x cluster.Topic) bool { return x.Name == topic || x.Name == state }) {
		t.Errorf("topics that a preflight has made: %v, %v", all, err)
	}
	m := run(t, "guarded", source, destination, o)
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { // groups and settings too
		s := m.Status()
		got, err := admins[preflight.Destination].Committed(ctx, []string{"billing"})
		if err != nil {
			return err
		}
		if s.Health != "ok" || len(got[0].Offsets) != 1 || got[0].Offsets[0].Offset != 7 {
			return fmt.Errorf("%s: %+v, %+v", s.Health, s.Syncs, got)
		}
		return nil
	})
	caughtUp(t, 30*time.Second, a, b, topic)
	equalBetween(t, admins[preflight.Source], admins[preflight.Destination], topic, 2)
}

// TestSourcePreflight: an old source is told with its limits, and blocks nothing; where topics are in
// the way at the destination, or records are, a real cluster says so too.
func TestSourcePreflight(t *testing.T) {
	src, dst := source(t), destination(t)
	const topic, less, full = "preflight", "preflight-less", "preflight-full"
	src.CreateTopic(t, topic, 2, 1, map[string]string{"retention.ms": "86400000"})
	src.CreateTopic(t, less, 1, 1, nil)
	src.CreateTopic(t, full, 1, 1, nil)
	dst.CreateTopic(t, less, 2, 1, nil)
	dst.CreateTopic(t, full, 1, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	put(t, src, topic, 0, 100)
	put(t, dst, full, 0, 3)
	limits := []string{}
	if v := sourceVersion(); v == "2.8.2" || v == "2.1.1" {
		limits = append(limits, "warns source version")
		if v == "2.1.1" {
			limits = []string{"warns source unchecked", "warns source version"}
		}
	}
	for _, tt := range []struct {
		topics []string
		plain  bool // settings are left alone
		want   []string
	}{
		{[]string{topic}, false, limits},
		{[]string{topic, less, full}, false, append([]string{"blocks destination not-empty", "blocks destination partitions"}, limits...)},
		{[]string{full}, true, append([]string{"blocks destination not-empty", "blocks destination timestamps"}, append(limits, "warns destination timestamps")...)},
	} {
		r, err := mirror.Preflight(t.Context(), "old", connect(t, src), connect(t, dst), &mirror.Options{Topics: mirror.Topics{Include: tt.topics}, NoConfigs: tt.plain})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, f := range r.Findings {
			got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Cluster, f.Code))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: %s\n%+v", tt.topics, diff, r.Findings)
		}
	}
}
