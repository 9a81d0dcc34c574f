package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// written puts text into a file of the test's own.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// identity is a certificate of a cluster's authority with its key, as PEM.
func identity(t *testing.T, k *kafkatest.Cluster, name string) string {
	t.Helper()
	cert, err := k.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

// TestRealJoinedTLS: brokers and controllers know each other by certificates, and clients
// log in over TLS. Records come, and go through us to who may read them.
func TestRealJoinedTLS(t *testing.T) {
	from := kafkatest.Start(t, kafkatest.Options{})
	to := kafkatest.Start(t, kafkatest.Options{Mutual: true, SASL: "PLAIN"})
	from.CreateTopic(t, "orders", 1, 1, nil)
	produce(t, from.Bootstrap()[0], "orders", 0, 100, "first")
	ca := written(t, "ca.pem", to.Authority())
	ours := written(t, "mirror.pem", identity(t, to, "mirror"))
	user := to.Options()
	trust := fmt.Sprintf("ssl.truststore.type=PEM\nssl.truststore.location=%s\n", ca)
	config := written(t, "b.properties", trust+fmt.Sprintf("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nbootstrap.servers=%s\n", to.Bootstrap()[0])+
		fmt.Sprintf("sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=%q password=%q;\n", user.User, user.Password))
	controllers := written(t, "c.properties", trust+fmt.Sprintf("security.protocol=SSL\nbootstrap.servers=%s\n", to.Controllers()[0])+
		fmt.Sprintf("ssl.keystore.type=PEM\nssl.keystore.location=%s\n", ours))
	args := []string{"run", "--source", from.Bootstrap()[0], "--destination-config", config, "--topics", "orders",
		"--salvage", filepath.Join(t.TempDir(), "salvage"),
		"--join", "100-102", "--join-state", filepath.Join(t.TempDir(), "joined"), "--join-bind", "127.0.0.1",
		"--join-controllers-config", controllers, "--join-cert", ours,
		"--join-listener", fmt.Sprint("INTERNAL=SSL://127.0.0.1:", freePort(t)), "--join-listener", fmt.Sprint("CLIENT=SASL_SSL://127.0.0.1:", freePort(t))}

	code, _, stderr := try(t, args...)
	if code != exitFailed || !strings.Contains(stderr, `listener "INTERNAL"`) || !strings.Contains(stderr, "ask each other for certificates") {
		t.Errorf("brokers are not asked for certificates: exit code %d:\n%s", code, stderr)
	}
	c := start(t, 0, append(args, "--join-client-ca", ca)...)
	c.shows(t, "1 topic, 1 "+string(coordinator.StateMirroring))
	records := 0
	cl := to.Client(t, kgo.ConsumeTopics("orders"))
	for ctx := t.Context(); records < 100; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		records += fetches.NumRecords()
	}
	c.stop(t)
}
