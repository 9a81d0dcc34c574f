package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kfake"
)

// keyPair makes a self-signed certificate for a host, as PEM.
func keyPair(t testing.TB, host string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

const scramLogin = `sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="alice" \
    password="s3cret";
`

// TestSecured runs a mirror and verify over TLS and SCRAM and PLAIN, with files
// as Java clients have them.
func TestSecured(t *testing.T) {
	cert, key := keyPair(t, "127.0.0.1")
	otherCert, otherKey := keyPair(t, "elsewhere.example")
	serve := func(cert, key string) kfake.Opt {
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}})
	}
	a := newCluster(t, "a", serve(cert, key), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "alice", "s3cret"), kfake.SeedTopics(1, "orders"))
	b := newCluster(t, "b", serve(otherCert, otherKey), kfake.EnableSASL(), kfake.Superuser("PLAIN", "bob", "pw"))
	trust := file(t, "trust.pem", cert)
	source := file(t, "a.properties", "bootstrap.servers="+a+"\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"+scramLogin+
		"ssl.truststore.type=PEM\nssl.truststore.location="+trust+"\n")
	// Not for this name, and trusted all the same, as the empty algorithm says.
	destination := file(t, "b.properties", "bootstrap.servers="+b+"\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"+
		`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="pw";`+
		"\nssl.truststore.type=PEM\nssl.truststore.certificates="+strings.ReplaceAll(otherCert, "\n", "\\n")+
		"\nssl.endpoint.identification.algorithm=\n")
	args := []string{"--source-config", source, "--destination-config", destination, "--topics", "orders"}
	c := start(t, 0, append([]string{"run"}, args...)...)
	c.until(t, "mirroring", func() bool { return strings.Contains(c.out.String(), "1 MIRRORING") })
	c.stop(t)
	if code, stdout, stderr := try(t, append([]string{"verify"}, args...)...); code != exitOK {
		t.Errorf("verify: exit code %d\n%s%s", code, stdout, stderr)
	}

	other, none := file(t, "other.pem", otherCert), "ssl.endpoint.identification.algorithm=\n"
	for _, tt := range []struct {
		name, want string
		change     *strings.Replacer
		more       string
	}{
		{"wrong password", "SASLAuthenticate", strings.NewReplacer("s3cret", "wr0ng"), ""},
		{"wrong name", "certificate", strings.NewReplacer(a, b, trust, other), ""},
		{"not trusted", "certificate", strings.NewReplacer(trust, other), ""},
		{"not trusted under any name", "certificate", strings.NewReplacer(trust, other), none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			good, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			bad := file(t, "bad.properties", tt.change.Replace(string(good))+tt.more)
			code, _, stderr := try(t, "verify", "--source-config", bad, "--destination-config", destination, "--topics", "orders")
			if code != exitFailed || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			if strings.Contains(stderr, "s3cret") || strings.Contains(stderr, "wr0ng") {
				t.Errorf("a secret was printed: %q", stderr)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	cert, key := keyPair(t, "localhost")
	inline := func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }
	store := file(t, "store.pem", key+cert)
	broken := file(t, "broken.pem", "hidden")
	cfg := func(lines ...string) string { return strings.Join(lines, "\n") }
	tests := []struct {
		name, text, err string
	}{
		{"nothing", "", ""},
		{"plain text", "security.protocol=plaintext\nclient.id=me\nrequest.timeout.ms=5000", ""},
		{"unknown keys", "zoo=hidden\nacks=all" + strings.Repeat("\n", 9) + "bootstrap.server=x", `line 1: zoo: unknown key
line 2: acks: unknown key
line 11: bootstrap.server: unknown key`},
		{"protocol", "security.protocol=TLS\nsasl.mechanism=PLAIN\nssl.keystore.type=PEM", `line 1: security.protocol: "TLS" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL`},
		{"login without protocol", "sasl.mechanism=PLAIN\nsasl.jaas.config=hidden\nssl.truststore.location=/x", `line 1: sasl.mechanism: needs security.protocol SASL_SSL or SASL_PLAINTEXT, but it is PLAINTEXT
line 2: sasl.jaas.config: needs security.protocol SASL_SSL or SASL_PLAINTEXT, but it is PLAINTEXT
line 3: ssl.truststore.location: needs security.protocol SSL or SASL_SSL, but it is PLAINTEXT`},
		{"mechanism", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", `line 2: sasl.mechanism: "GSSAPI" is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512`},
		{"no login", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", `sasl.jaas.config: is needed with security.protocol SASL_SSL`},
		{"bad login", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required a=hidden;", `line 3: sasl.jaas.config: option a is not supported
line 3: sasl.jaas.config: option username is needed
line 3: sasl.jaas.config: option password is needed`},
		{"timeout", "request.timeout.ms=5s", "line 1: request.timeout.ms: want a number of milliseconds above 0"},
		{"system's certificates", "security.protocol=SSL", ""},
		{"keystore", cfg("security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location="+store), ""},
		{"keystore inline", cfg("security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.certificate.chain="+inline(cert), "ssl.keystore.key="+inline(key)), ""},
		{"half a keystore", cfg("security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.certificate.chain="+inline(cert)),
			"line 3: ssl.keystore.certificate.chain: needs ssl.keystore.key"},
		{"the other half", cfg("security.protocol=SSL", "ssl.keystore.key="+inline(key)), "line 2: ssl.keystore.key: needs ssl.keystore.certificate.chain"},
		{"both keystores", cfg("security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location="+store, "ssl.keystore.key="+inline(key)),
			"line 4: ssl.keystore.key: and ssl.keystore.location exclude each other"},
		{"keystore without a key", cfg("security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.keystore.location="+broken),
			"line 3: ssl.keystore.location: no usable certificate with an unencrypted private key: tls: failed to find any PEM data in certificate input"},
		{"Java's store", cfg("security.protocol=SSL", "ssl.truststore.location=/t.jks", "ssl.truststore.password=hidden"), `line 2: ssl.truststore.location: needs ssl.truststore.type=PEM; keystores of Java (JKS, PKCS12) are not read
line 3: ssl.truststore.password: unknown key`},
		{"two truststores", cfg("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location="+store, "ssl.truststore.certificates="+inline(cert)),
			"line 4: ssl.truststore.certificates: and ssl.truststore.location exclude each other"},
		{"no certificate", cfg("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location="+broken), "line 3: ssl.truststore.location: holds no PEM certificate"},
		{"a type alone", cfg("security.protocol=SSL", "ssl.truststore.type=PEM"), "line 2: ssl.truststore.type: needs ssl.truststore.location or ssl.truststore.certificates"},
		{"no file", cfg("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=/none/x"), "line 3: ssl.truststore.location: open /none/x: no such file or directory"},
		{"algorithm", cfg("security.protocol=SSL", "ssl.endpoint.identification.algorithm=ldaps"), `line 2: ssl.endpoint.identification.algorithm: "ldaps" is neither https nor empty`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readConfig(file(t, "c.properties", tt.text))
			got := ""
			if err != nil {
				got = fmt.Sprint(err)
			}
			if diff := cmp.Diff(tt.err, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSettingsTaken: what stands in a file is what connects.
func TestSettingsTaken(t *testing.T) {
	cert, key := keyPair(t, "localhost")
	store := file(t, "store.pem", cert+key)
	cfg, err := readConfig(file(t, "c.properties", `bootstrap.servers = a:9092, b:9092 ,c:9092
client.id = me
request.timeout.ms = 5000
security.protocol = sasl_ssl
sasl.mechanism = PLAIN
sasl.jaas.config = x.PlainLoginModule required username="bob" password="pw";
ssl.keystore.type = PEM
ssl.keystore.location = `+store+`
`))
	if err != nil {
		t.Fatal(err)
	}
	got := []any{cfg.Bootstrap, cfg.ClientID, cfg.RequestTimeout, cfg.SASL, len(cfg.TLS.Certificates), cfg.TLS.InsecureSkipVerify, cfg.TLS.RootCAs == nil}
	want := []any{[]string{"a:9092", "b:9092", "c:9092"}, "me", 5 * time.Second, plain.Mechanism{Username: "bob", Password: "pw"}, 1, false, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	f := &connectionFlags{side: "source", file: file(t, "d.properties", "bootstrap.servers=a:1"), bootstrap: []string{"b:2"}}
	if cfg, err := f.config(); err != nil || !cmp.Equal(cfg.Bootstrap, []string{"b:2"}) {
		t.Errorf("the flag does not win over the file: %v, %v", cfg.Bootstrap, err)
	}
}
