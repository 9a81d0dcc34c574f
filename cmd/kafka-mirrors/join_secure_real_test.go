package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// guarded is a cluster whose brokers and clients log in with SCRAM over TLS, whose controllers
// know brokers by certificates, and whose authorizer lets "broker" do everything and others nothing.
func guarded(t *testing.T, version string) *kafkatest.Cluster {
	t.Helper()
	const jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required username=broker password=b;"
	return kafkatest.Start(t, kafkatest.Options{Version: version, Mutual: true, SASL: "SCRAM-SHA-512", User: "broker", Password: "b", Config: map[string]string{
		"listener.security.protocol.map":                        "CLIENT:SASL_SSL,INTERNAL:SASL_SSL,CONTROLLER:SSL",
		"listener.name.internal.ssl.client.auth":                "none",
		"sasl.mechanism.inter.broker.protocol":                  "SCRAM-SHA-512",
		"listener.name.internal.sasl.enabled.mechanisms":        "SCRAM-SHA-512",
		"listener.name.internal.scram-sha-512.sasl.jaas.config": jaas,
		"authorizer.class.name":                                 "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:broker;User:CN=localhost",
	}})
}

// user makes one of SCRAM.
func user(t *testing.T, admin *kgo.Client, name, password string) {
	t.Helper()
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	one := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	one.Name, one.Mechanism, one.Iterations, one.Salt = name, 2, 4096, []byte("salt of "+name)
	var err error
	if one.SaltedPassword, err = pbkdf2.Key(sha512.New, password, one.Salt, int(one.Iterations), sha512.Size); err != nil {
		t.Fatal(err)
	}
	req.Upsertions = append(req.Upsertions, one)
	resp, err := req.RequestWith(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Results[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
}

// grant gives principals operations on resources of a name, or with it as a prefix.
func grant(t *testing.T, admin *kgo.Client, kind kmsg.ACLResourceType, name string, pattern kmsg.ACLResourcePatternType, operations []kmsg.ACLOperation, principals ...string) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, op := range operations {
		for _, p := range principals {
			one := kmsg.NewCreateACLsRequestCreation()
			one.ResourceType, one.ResourceName, one.ResourcePatternType, one.Principal = kind, name, pattern, "User:"+p
			one.Host, one.Operation, one.PermissionType = "*", op, kmsg.ACLPermissionTypeAllow
			req.Creations = append(req.Creations, one)
		}
	}
	resp, err := req.RequestWith(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
}

// grantMirror gives what docs/joined.md says, to a user and to who he is to controllers.
func grantMirror(t *testing.T, admin *kgo.Client, topics string, principals ...string) {
	t.Helper()
	const literal, prefixed = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	ops := func(o ...kmsg.ACLOperation) []kmsg.ACLOperation { return o }
	grant(t, admin, kmsg.ACLResourceTypeCluster, "kafka-cluster", literal,
		ops(kmsg.ACLOperationClusterAction, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe, kmsg.ACLOperationIdempotentWrite), principals...)
	grant(t, admin, kmsg.ACLResourceTypeTopic, topics, prefixed,
		ops(kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe, kmsg.ACLOperationRead, kmsg.ACLOperationAlter, kmsg.ACLOperationAlterConfigs), principals...)
	grant(t, admin, kmsg.ACLResourceTypeTransactionalId, "*", literal, ops(kmsg.ACLOperationDescribe), principals...)
	grant(t, admin, kmsg.ACLResourceTypeGroup, "*", literal, ops(kmsg.ACLOperationRead), principals...)
	grant(t, admin, kmsg.ACLResourceTypeTopic, "__cluster_mirror_state", literal, ops(kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe,
		kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationRead, kmsg.ACLOperationWrite), principals...)
}

// as is a client of a cluster with a login of its own.
func as(t *testing.T, k *kafkatest.Cluster, name, password string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Bootstrap()...), kgo.DialTLSConfig(k.TLSConfig()),
		kgo.SASL(scram.Auth{User: name, Pass: password}.AsSha512Mechanism()), kgo.MetadataMinAge(100 * time.Millisecond)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// TestRealJoinedSecureStandby: brokers, clients and controllers want logins or certificates, and
// an authorizer watches. Two processes with exactly the documented permissions stand by for each
// other: the one that mirrors is killed, and who may read goes on; who may not gets nothing, and nobody
// can write.
func TestRealJoinedSecureStandby(t *testing.T) {
	for _, version := range leaveVersions() {
		t.Run(version, func(t *testing.T) { secureStandby(t, version) })
	}
}

func secureStandby(t *testing.T, version string) {
	from, to := kafkatest.Start(t, kafkatest.Options{}), guarded(t, version)
	admin, a := to.Client(t), from.Bootstrap()[0]
	from.CreateTopic(t, "orders", 2, 1, nil)
	produce(t, a, "orders", 0, 100, "first")
	for _, name := range []string{"mirror", "reader", "stranger", "writer"} {
		user(t, admin, name, "of "+name)
	}
	grantMirror(t, admin, "orders", "mirror", "CN=mirror")
	grant(t, admin, kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLResourcePatternTypeLiteral, []kmsg.ACLOperation{kmsg.ACLOperationRead}, "reader")
	grant(t, admin, kmsg.ACLResourceTypeTopic, "orders", kmsg.ACLResourcePatternTypeLiteral, []kmsg.ACLOperation{kmsg.ACLOperationWrite}, "writer")

	first := spawn(t, secureLine(t, a, to)...)
	reader := as(t, to, "reader", "of reader", kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := 0
	reads := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for got < n {
			fetches := reader.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%d of %d records were read; the first process said:\n%s", got, n, first.out.String())
			}
			got += fetches.NumRecords()
		}
	}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		if n := inSync(t, admin, "orders"); n != 2 {
			return fmt.Errorf("%d in sync; it said:\n%s", n, first.out.String())
		}
		return nil
	})
	reads(100)
	second := spawn(t, secureLine(t, a, to)...)
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
		if n := inSync(t, admin, "orders"); n != 4 {
			return fmt.Errorf("%d in sync; it said:\n%s", n, second.out.String())
		}
		return nil
	})
	for round := range 2 {
		produce(t, a, "orders", 0, 50, fmt.Sprint("round ", round))
		reads(150 + 60*round)
		stranger := as(t, to, "stranger", "of stranger", kgo.ConsumeTopics("orders"))
		kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error {
			fetches := stranger.PollFetches(ctx)
			if n := fetches.NumRecords(); n > 0 {
				t.Errorf("a stranger reads %d records", n)
			}
			if err := fetches.Err(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
				return fmt.Errorf("a stranger is told %w", err)
			}
			return nil
		})
		writer := as(t, to, "writer", "of writer", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(20*time.Second), kgo.DisableIdempotentWrite())
		if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("of others")}).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("writing: %v", err)
		}
		if round == 0 {
			began := time.Now()
			first.kill()
			produce(t, a, "orders", 1, 10, "after the kill")
			reads(160)
			t.Logf("records come again %v after the one that mirrored was killed", time.Since(began))
		}
	}
}

// secureLine is the command of a process with ports of its own.
func secureLine(t *testing.T, source string, to *kafkatest.Cluster) []string {
	t.Helper()
	ca, ours := written(t, "ca.pem", to.Authority()), written(t, "mirror.pem", identity(t, to, "mirror"))
	trust := fmt.Sprintf("ssl.truststore.type=PEM\nssl.truststore.location=%s\n", ca)
	config := written(t, "b.properties", trust+fmt.Sprintf("security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nbootstrap.servers=%s\n", strings.Join(to.Bootstrap(), ","))+
		"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"mirror\" password=\"of mirror\";\n")
	controllers := written(t, "c.properties", trust+fmt.Sprintf("security.protocol=SSL\nbootstrap.servers=%s\n", to.Controllers()[0])+
		fmt.Sprintf("ssl.keystore.type=PEM\nssl.keystore.location=%s\n", ours))
	return []string{"run", "--name", "a-to-b", "--source", source, "--destination-config", config, "--topics", "orders", "--state", "kafka",
		"--salvage", filepath.Join(t.TempDir(), "salvage"), "--join", "100-102", "--join-bind", "127.0.0.1", "--log-level", "info",
		"--join-controllers-config", controllers, "--join-cert", ours,
		"--join-listener", fmt.Sprint("INTERNAL=SASL_SSL://127.0.0.1:", freePort(t)), "--join-listener", fmt.Sprint("CLIENT=SASL_SSL://127.0.0.1:", freePort(t))}
}
