package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/topics"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	kplain "github.com/twmb/franz-go/pkg/sasl/plain"
)

// guarded is a cluster that lets "mirror" do everything, and "app" and "other" nothing.
func guarded(t *testing.T) *kafkatest.Cluster {
	return kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:mirror;User:ANONYMOUS",
		"listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
			"user_mirror=mirror-secret user_app=a user_other=o;",
	}})
}

// writes tells whether a user may write into a topic.
func writes(t *testing.T, k *kafkatest.Cluster, topic, user, password string, idempotent bool) error {
	t.Helper()
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.Bootstrap()...), kgo.RecordDeliveryTimeout(20 * time.Second), kgo.SASL(kplain.Auth{User: user, Pass: password}.AsMechanism()),
	}
	if !idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
}

// TestRealACLs is the matrix of access rules between two clusters with authorizers: every kind of
// rule is copied as it is and works, what the filter leaves out is not, rules are deleted when
// owned and asked for, and who may not is told which right is missing.
func TestRealACLs(t *testing.T) {
	t.Parallel()
	a, b := guarded(t), guarded(t)
	login := func(user, password string) func(*Config) {
		return func(cfg *Config) { cfg.SASL = plain.Mechanism{Username: user, Password: password} }
	}
	from, to := open(t, a.Bootstrap(), login("mirror", "mirror-secret")), open(t, b.Bootstrap(), login("mirror", "mirror-secret"))
	b.CreateTopic(t, "orders", 1, 1, nil)
	rule := func(kind, name, pattern, user, operation, permission string) cluster.Binding {
		return cluster.Binding{ResourceType: kind, Name: name, PatternType: pattern, Principal: "User:" + user, Host: "*", Operation: operation, Permission: permission}
	}
	write := rule("TOPIC", "ord", "PREFIXED", "app", "WRITE", "ALLOW")
	wanted := []cluster.Binding{
		write, rule("TOPIC", "orders", "LITERAL", "app", "ALL", "ALLOW"), rule("TOPIC", "*", "LITERAL", "app", "READ", "ALLOW"),
		rule("GROUP", "app-", "PREFIXED", "app", "READ", "ALLOW"), rule("TOPIC", "secret", "LITERAL", "app", "DESCRIBE", "DENY"),
		rule("TRANSACTIONAL_ID", "app", "LITERAL", "app", "TWO_PHASE_COMMIT", "ALLOW"), rule("CLUSTER", "kafka-cluster", "LITERAL", "app", "IDEMPOTENT_WRITE", "ALLOW"),
		rule("DELEGATION_TOKEN", "tok", "LITERAL", "app", "DESCRIBE", "ALLOW"), rule("USER", "u", "LITERAL", "app", "CREATE_TOKENS", "ALLOW"),
	}
	filtered := rule("TOPIC", "orders", "LITERAL", "other", "WRITE", "ALLOW")
	own := []cluster.Binding{ // and such as differ in one field from one that is deleted
		rule("TOPIC", "own", "LITERAL", "app", "WRITE", "ALLOW"), rule("TOPIC", "own", "PREFIXED", "app", "WRITE", "ALLOW"),
		rule("TOPIC", "ord", "LITERAL", "app", "WRITE", "ALLOW"), rule("TOPIC", "ord", "PREFIXED", "third", "WRITE", "ALLOW"),
		rule("TOPIC", "ord", "PREFIXED", "app", "ALTER", "ALLOW"), rule("GROUP", "ord", "PREFIXED", "app", "DESCRIBE", "ALLOW"),
	}
	elsewhere := write
	elsewhere.Host = "10.1.2.3"
	own = append(own, elsewhere)
	add := func(c *Cluster, bs ...cluster.Binding) {
		t.Helper()
		if err := errors.Join(c.CreateACLs(t.Context(), bs)...); err != nil {
			t.Fatal(err)
		}
	}
	add(from, append(wanted, filtered)...)
	add(to, own...)
	filter, err := acl.NewFilter([]acl.Rule{{Principal: "User:app"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := acl.Syncer{Source: from, Destination: to, Filter: filter, Ledger: acl.Ledger{Notes: coordinator.NewMemory(), Cluster: "b", Mirror: "ab"}}
	expect := func(c *Cluster, want ...cluster.Binding) { // brokers hear of rules a little later
		t.Helper()
		kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			got, err := c.ACLs(ctx)
			there := map[cluster.Binding]bool{}
			for _, b := range got {
				there[b] = true
			}
			for _, b := range want {
				if !there[b] {
					err = errors.Join(err, fmt.Errorf("missing: %v", b))
				}
			}
			if err == nil && len(got) != len(want) {
				err = fmt.Errorf("%d rules, want %d: %v", len(got), len(want), got)
			}
			return err
		})
	}
	sync := func(created, deleted, owned int) {
		t.Helper()
		r, err := s.Sync(t.Context())
		if err != nil || len(r.Refused) > 0 || r.Created != created || r.Deleted != deleted || r.Owned != owned {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	expect(from, append(wanted, filtered)...)
	if err := writes(t, b, "orders", "app", "a", false); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("before: %v", err)
	}
	sync(len(wanted), 0, len(wanted))
	expect(to, slices.Concat(wanted, own)...)
	kafkatest.Eventually(t, 30*time.Second, func(context.Context) error { return writes(t, b, "orders", "app", "a", false) })
	if err := writes(t, b, "orders", "other", "o", false); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("a rule that is filtered: %v", err)
	}
	sync(0, 0, len(wanted))

	if err := errors.Join(from.DeleteACLs(t.Context(), wanted[:2])...); err != nil {
		t.Fatal(err)
	}
	expect(from, append(wanted[2:], filtered)...)
	sync(0, 0, len(wanted))
	expect(to, slices.Concat(wanted, own)...)
	s.Delete = true
	sync(0, 2, len(wanted)-2)
	expect(to, slices.Concat(wanted[2:], own)...)
	kafkatest.Eventually(t, 30*time.Second, func(context.Context) error {
		if err := writes(t, b, "orders", "app", "a", false); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			return fmt.Errorf("the right is gone, and yet: %v", err)
		}
		return nil
	})

	app := open(t, b.Bootstrap(), login("app", "a"))
	if _, err := app.ACLs(t.Context()); !errors.Is(err, cluster.ErrAuthorization) {
		t.Errorf("C8.5: a listing without DESCRIBE: %v", err)
	}
	if err := app.CreateACLs(t.Context(), []cluster.Binding{write})[0]; !errors.Is(err, cluster.ErrAuthorization) {
		t.Errorf("C8.5: a rule without ALTER: %v", err)
	}
	missingRights(t, b, to, open(t, b.Bootstrap(), login("other", "o")))
}

// missingRights: of several topics those are refused on which a right is missing, which the error
// names with the topic; the others go on.
func missingRights(t *testing.T, k *kafkatest.Cluster, admin, other *Cluster) {
	k.CreateTopic(t, "locked", 1, 1, nil)
	may := func(topic, operation, permission string) cluster.Binding {
		return cluster.Binding{ResourceType: "TOPIC", Name: topic, PatternType: "LITERAL", Principal: "User:other", Host: "*", Operation: operation, Permission: permission}
	}
	if err := errors.Join(admin.CreateACLs(t.Context(), []cluster.Binding{
		may("orders", "ALTER_CONFIGS", "ALLOW"), may("locked", "DESCRIBE", "ALLOW"), may("new", "CREATE", "ALLOW"), may("new", "DESCRIBE", "ALLOW"),
		may("orders", "WRITE", "ALLOW"), may("orders", "WRITE", "DENY"),
	})...); err != nil {
		t.Fatal(err)
	}
	value := "1234567"
	alter := func(topic string) topics.Changes {
		return topics.Changes{Topic: topic, Changes: []topics.Change{{Name: "retention.ms", Value: &value}}}
	}
	kafkatest.Eventually(t, 30*time.Second, func(ctx context.Context) error { // brokers hear of rules a little later
		return other.AlterTopics(ctx, []topics.Changes{alter("orders")})[0]
	})
	refused := func(what, right string, errs []error) {
		t.Helper()
		if errs[0] != nil || !errors.Is(errs[1], cluster.ErrAuthorization) || !strings.Contains(errs[1].Error(), "(it takes "+right) {
			t.Errorf("%s: %v", what, errs)
		}
	}
	refused("alter", "ALTER_CONFIGS on the topic", other.AlterTopics(t.Context(), []topics.Changes{alter("orders"), alter("locked")}))
	refused("create", "CREATE on the topic or the cluster", other.CreateTopics(t.Context(), []cluster.NewTopic{
		{Name: "new", Partitions: 1, ReplicationFactor: 1}, {Name: "not", Partitions: 1, ReplicationFactor: 1},
	}))
	refused("grow", "ALTER on the topic", append([]error{nil}, other.GrowTopics(t.Context(), []cluster.Topic{{Name: "locked", Partitions: 2}})...))
	answers, err := other.TopicConfigs(t.Context(), []string{"orders", "locked"})
	if err != nil {
		t.Fatal(err)
	}
	refused("configs", "DESCRIBE_CONFIGS on the topic", []error{answers[0].Err, answers[1].Err})
	if text := answers[1].Err.Error(); !strings.Contains(text, "locked") {
		t.Error(text)
	}

	// A DENY on the only topic that it may write to: a guard's.
	for idempotent, want := range map[bool]error{false: kerr.TopicAuthorizationFailed, true: kerr.ClusterAuthorizationFailed} {
		kafkatest.Eventually(t, 30*time.Second, func(context.Context) error {
			if err := writes(t, k, "orders", "other", "o", idempotent); !errors.Is(err, want) {
				return fmt.Errorf("a producer, idempotent %v: %w, want %w", idempotent, err, want)
			}
			return nil
		})
	}
}
