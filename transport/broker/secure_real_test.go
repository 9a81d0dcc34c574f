package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	segplain "github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// locked is a cluster of one node where all listeners want a password and an
// authorizer watches: "broker" may do everything, "mirror", "reader" and "writer"
// nothing.
func locked(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	users := "user_broker=b user_mirror=m user_reader=r user_writer=w"
	login := func(more string) string {
		return "org.apache.kafka.common.security.plain.PlainLoginModule required " + more + " " + users + ";"
	}
	set := map[string]string{
		"listener.security.protocol.map":     "CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
		"sasl.mechanism.controller.protocol": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:broker",
		"listener.name.client.plain.sasl.jaas.config": login(""),
	}
	for _, l := range []string{"internal", "controller"} {
		set["listener.name."+l+".sasl.enabled.mechanisms"] = "PLAIN"
		set["listener.name."+l+".plain.sasl.jaas.config"] = login("username=broker password=b")
	}
	return kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", User: "broker", Password: "b", Config: set})
}

// allow gives a user an operation on the cluster, or on a topic.
func allow(t *testing.T, cl *kgo.Client, user string, topic string, operations ...kmsg.ACLOperation) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, op := range operations {
		one := kmsg.NewCreateACLsRequestCreation()
		one.ResourceType, one.ResourceName = kmsg.ACLResourceTypeCluster, "kafka-cluster"
		if topic != "" {
			one.ResourceType, one.ResourceName = kmsg.ACLResourceTypeTopic, topic
		}
		one.ResourcePatternType, one.Principal, one.Host = kmsg.ACLResourcePatternTypeLiteral, "User:"+user, "*"
		one.Operation, one.PermissionType = op, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, one)
	}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if r.ErrorCode != 0 {
			t.Fatalf("ACL for %s: %d", user, r.ErrorCode)
		}
	}
}

// TestRealSecure: passwords on every listener and an authorizer; the documented
// permissions are enough and each is needed; clients get through us exactly what
// the real broker gives them.
func TestRealSecure(t *testing.T) {
	t.Parallel()
	k := locked(t)
	admin := k.Client(t)
	k.CreateTopic(t, "open", 1, 1, nil)
	k.CreateTopic(t, "shut", 1, 1, nil)
	cfg := Config{IDs: IDs{100, 100}, Identities: new(MemoryIdentities), SASL: segplain.Mechanism{Username: "mirror", Password: "m"}}
	look := func() string {
		cfg := cfg
		cfg.IDs.Last++ // the first is taken in the end
		cfg.Bootstrap, cfg.Listeners = k.Bootstrap(), []Listener{{"INTERNAL", "127.0.0.1", 1, 2}, {"OTHER", "127.0.0.1", 1, 2}}
		c, err := NewCandidate(cfg, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(c.Joinable(within(t, time.Minute)))
	}
	for _, n := range needed {
		if why := look(); !strings.Contains(why, "--operation "+n.name) {
			t.Errorf("a look before %v is allowed: %v", n.name, why)
		}
		us := join(t, k, cfg)
		if err := <-us.done; !errors.Is(err, cluster.ErrAuthorization) || !strings.Contains(err.Error(), "--operation "+n.name) {
			t.Errorf("before %v is allowed: %v", n.name, err)
		}
		allow(t, admin, "mirror", "", kmsg.ACLOperation(n.bit))
	}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // the broker hears of ACLs a little later
		us := join(t, k, cfg)
		joined := make(chan error, 1)
		go func() { joined <- us.WaitJoined(within(t, time.Minute)) }()
		select {
		case err := <-us.done:
			return err
		case err := <-joined:
			if err != nil {
				return err
			}
			if why := look(); why != `[listener "OTHER": no broker of the cluster has one of that name]` {
				t.Errorf("a look when all is allowed: %s", why)
			}
			tunnel(t, k, admin, us.Membership)
			return nil
		}
	})
}

// tunnel compares what users are told through us and by the real broker.
func tunnel(t *testing.T, k *kafkatest.Cluster, admin *kgo.Client, m *Membership) {
	t.Helper()
	b, _ := m.log.Image().Broker(100)
	us := ""
	for _, l := range b.Listeners {
		if l.Name == "CLIENT" {
			us = net.JoinHostPort(l.Host, fmt.Sprint(l.Port))
		}
	}
	allow(t, admin, "reader", "open", kmsg.ACLOperationDescribe)
	ask := func(seed, password string) (string, error) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.SASL(plain.Auth{User: "reader", Pass: password}.AsMechanism()), kgo.RetryTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = nil
		for _, name := range []string{"open", "shut"} {
			one := kmsg.NewMetadataRequestTopic()
			one.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, one)
		}
		answer, err := cl.SeedBrokers()[0].Request(within(t, 20*time.Second), req)
		if err != nil {
			return "", err
		}
		var told []string
		for _, topic := range answer.(*kmsg.MetadataResponse).Topics {
			told = append(told, fmt.Sprint(*topic.Topic, " ", topic.ErrorCode))
		}
		slices.Sort(told)
		return strings.Join(told, ", "), nil
	}
	kafkatest.Eventually(t, time.Minute, func(context.Context) error {
		through, err := ask(us, "r")
		if err != nil {
			return err
		}
		direct, err := ask(k.Addr(1), "r")
		if want := "open 0, shut 29"; err != nil || through != want || direct != want {
			return fmt.Errorf("through us %q, from the real broker %q, want %q: %v", through, direct, want, err)
		}
		return nil
	})
	if told, err := ask(us, "wrong"); err == nil {
		t.Errorf("a wrong password is told %q", told)
	}
	if err := m.Cordon(within(t, time.Minute), false); err != nil { // strays over listeners with passwords
		t.Fatal(err)
	}
	k.CreateTopic(t, "uncordoned", 6, 1, nil)
	offUs(t, m, "uncordoned", 6, 1)
	if err := m.Leave(within(t, time.Minute)); err != nil {
		t.Errorf("Leave: %v", err)
	}
}
