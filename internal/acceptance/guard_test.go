package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	kplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/kafka"
)

// guardian mirrors guarded topics in a process of its own, as a user who is no super user: source,
// destination, topics.
func guardian(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m, end, err := guardedMirror("guarded", "User:mirror", strings.Split(args[0], ","), strings.Split(args[1], ","), strings.Split(args[2], ","))
	if err != nil {
		return err
	}
	defer end()
	return m.Run(ctx)
}

// guardedMirror is the same mirror in each process; end closes what it uses.
func guardedMirror(name, may string, from, to, topics []string) (m *mirror.Mirror, end func() error, err error) {
	user := plain.Mechanism{Username: "mirror", Password: "m"}
	source, err := kafka.New(kafka.Config{Bootstrap: from})
	if err != nil {
		return nil, nil, err
	}
	destination, err := kafka.New(kafka.Config{Bootstrap: to, SASL: user})
	if err != nil {
		return nil, nil, err
	}
	store, err := statekafka.New(statekafka.Config{Bootstrap: to, SASL: user})
	if err != nil {
		return nil, nil, err
	}
	m, err = mirror.New(name, source, destination, &mirror.Options{
		Topics: mirror.Topics{Include: topics}, Store: store, RetryMax: 3 * time.Second, NoGroups: true,
		Guard: mirror.Guard{On: true, May: []string{may}, Open: true, Interval: 2 * time.Second},
	})
	return m, func() error { return errors.Join(source.Close(), destination.Close(), store.Close()) }, err
}

// produces tells whether a user may write to a topic.
func produces(t *testing.T, k *kafkatest.Cluster, topic, user, password string, with ...kgo.Opt) error {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(k.Bootstrap()...), kgo.RecordDeliveryTimeout(20 * time.Second), kgo.SASL(kplain.Auth{User: user, Pass: password}.AsMechanism()),
	}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("of an application")}).FirstErr()
}

// reads tells whether a user can read a topic up to an offset.
func reads(t *testing.T, k *kafkatest.Cluster, topic, user, password string, upTo int64) error {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap()...), kgo.SASL(kplain.Auth{User: user, Pass: password}.AsMechanism()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for at := int64(0); at < upTo; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return fmt.Errorf("at %d of %d: %w", at, upTo, err)
		}
		fs.EachRecord(func(r *kgo.Record) { at = r.Offset + 1 })
	}
	return nil
}

// guards runs a guarded mirror in this process until end is called.
func guards(t *testing.T, src, dst *kafkatest.Cluster, name, may string, topics ...string) (m *mirror.Mirror, end func()) {
	t.Helper()
	m, closeAll, err := guardedMirror(name, may, src.Bootstrap(), dst.Bootstrap(), topics)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ran, closeAll()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return m, end
}

// TestGuard: while topics are mirrored their applications are refused and readers go on, with rules
// and without any in a cluster that is open then; a kill -9 leaves that as it is, and the stop of the next
// process lets everybody in again and leaves nothing behind. The mirror is no super user.
func TestGuard(t *testing.T) {
	src := source(t)
	dst := kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", User: "admin", Password: "secret", Config: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:admin;User:ANONYMOUS",
		"allow.everyone.if.no.acl.found": "true",
		"listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
			"user_admin=secret user_mirror=m user_app=a user_reader=r;",
	}})
	const ruled, open = "guard-ruled", "guard-open"
	admin := connect(t, dst, func(c *kafka.Config) { c.SASL = plain.Mechanism{Username: "admin", Password: "secret"} })
	rule := func(kind, name, pattern, user, operation string) cluster.Binding {
		return cluster.Binding{ResourceType: kind, Name: name, PatternType: pattern, Principal: "User:" + user, Host: "*", Operation: operation, Permission: "ALLOW"}
	}
	before := []cluster.Binding{
		rule("CLUSTER", "kafka-cluster", "LITERAL", "mirror", "ALL"), rule("TOPIC", ruled, "LITERAL", "mirror", "ALL"),
		rule("TOPIC", "guard-r", "PREFIXED", "app", "WRITE"), rule("TOPIC", ruled, "LITERAL", "reader", "READ"),
	}
	if err := errors.Join(admin.CreateACLs(t.Context(), before)...); err != nil {
		t.Fatal(err)
	}
	rules := func() []string {
		t.Helper()
		all, err := admin.ACLs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return words(all)
	}
	for _, topic := range []string{ruled, open} {
		src.CreateTopic(t, topic, 1, 1, nil)
		put(t, src, topic, 0, 50)
	}
	p := kafkatest.SpawnChild(t, "guardian", strings.Join(src.Bootstrap(), ","), strings.Join(dst.Bootstrap(), ","), ruled+","+open)
	denied := rule("TOPIC", ruled, "LITERAL", "app", "WRITE")
	denied.Permission = "DENY"
	added := []cluster.Binding{denied, rule("TOPIC", open, "LITERAL", "mirror", "WRITE")}
	for _, operation := range []string{"READ", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"} {
		added = append(added, rule("TOPIC", open, "LITERAL", "*", operation))
	}
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if d := cmp.Diff(words(slices.Concat(before, added)), rules()); d != "" {
			return errors.New(d)
		}
		return nil
	})
	refused := func(when string) {
		t.Helper()
		for _, topic := range []string{ruled, open} {
			kafkatest.Eventually(t, 30*time.Second, func(context.Context) error { // brokers hear of rules a little later
				for how, with := range map[string][]kgo.Opt{"plain": {kgo.DisableIdempotentWrite()}, "idempotent": nil} {
					if err := produces(t, dst, topic, "app", "a", with...); !errors.Is(err, kerr.TopicAuthorizationFailed) {
						return fmt.Errorf("%s: %s: a producer (%s): %w", when, topic, how, err)
					}
				}
				return nil
			})
		}
	}
	refused("guarded")
	copied := func(n int64) {
		t.Helper()
		for _, topic := range []string{ruled, open} {
			caughtUp(t, time.Minute, src, dst, topic)
			if err := reads(t, dst, topic, "reader", "r", n); err != nil {
				t.Errorf("%s: a reader: %v", topic, err)
			}
		}
	}
	copied(50)
	put(t, src, ruled, 0, 50)
	put(t, src, open, 0, 50)
	copied(100)
	p.Kill()
	refused("killed")
	if d := cmp.Diff(words(slices.Concat(before, added)), rules()); d != "" {
		t.Errorf("after a kill: %s", d)
	}

	next, end := guards(t, src, dst, "guarded", "User:mirror", ruled, open)
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		if s := next.Status(); s.States["MIRRORING"] != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := next.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(words(before), rules()); d != "" {
		t.Errorf("stopped: %s", d)
	}
	for _, topic := range []string{ruled, open} {
		kafkatest.Eventually(t, 10*time.Second, func(context.Context) error { return produces(t, dst, topic, "app", "a") })
		if err := reads(t, dst, topic, "reader", "r", 101); err != nil {
			t.Errorf("%s: a reader: %v", topic, err)
		}
	}
	end()
	nothingOnRecord(t, dst, admin)

	// Its own principal is not among those that may: it is refused by its own guard, says so, and can
	// be stopped all the same.
	const wrong = "guard-wrong"
	before = append(before, rule("TOPIC", wrong, "LITERAL", "mirror", "ALL"))
	if err := errors.Join(admin.CreateACLs(t.Context(), before[len(before)-1:])...); err != nil {
		t.Fatal(err)
	}
	src.CreateTopic(t, wrong, 1, 1, nil)
	put(t, src, wrong, 0, 50)
	bound, end := guards(t, src, dst, "wrong", "User:mirrors", wrong)
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		put(t, src, wrong, 0, 1)
		for _, s := range bound.Status().Syncs {
			if s.Kind == mirror.SyncGuard && strings.Contains(s.Refused[wrong], "among Guard.May?") {
				return nil
			}
		}
		return fmt.Errorf("%+v", bound.Status())
	})
	if err := bound.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(words(before), rules()); d != "" {
		t.Errorf("stopped: %s", d)
	}
	end()
}

// words are rules as texts, sorted.
func words(bs []cluster.Binding) (out []string) {
	for _, b := range bs {
		out = append(out, b.String())
	}
	slices.Sort(out)
	return out
}

// nothingOnRecord proves that the guard is off the record in the state topic.
func nothingOnRecord(t *testing.T, k *kafkatest.Cluster, admin *kafka.Cluster) {
	t.Helper()
	store, err := statekafka.New(statekafka.Config{Bootstrap: k.Bootstrap(), SASL: plain.Mechanism{Username: "admin", Password: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	id, err := admin.ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := acl.Ledger{Notes: store, Cluster: id, Mirror: "guarded"}.Guarded(t.Context())
	if err != nil || len(guarded) > 0 {
		t.Errorf("on record are %v, %v", guarded, err)
	}
}
