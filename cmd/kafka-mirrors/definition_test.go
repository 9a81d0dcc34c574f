package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/kafka"
)

// TestReadMirror: the file of a Java client is one of a mirror, with the mirror's own keys
// besides; what is wrong is named, all at once, with the line.
func TestReadMirror(t *testing.T) {
	def, err := readMirror(file(t, "m.properties", `bootstrap.servers=a:1,b:2
source.security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:PASSWORD}";
truncation=rebuild
scratch=allow
retry.min=2s
`))
	if err != nil || checkMirror(def) != nil {
		t.Fatal(err, checkMirror(def))
	}
	want := coordinator.Definition{
		Source: map[string]string{"bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
			"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:PASSWORD}";`},
		Destination: map[string]string{"truncation": "rebuild"},
		Config:      map[string]string{"scratch": "allow", "retry.min": "2s"},
	}
	if diff := cmp.Diff(want, def); diff != "" {
		t.Error(diff)
	}
	bad := file(t, "m.properties", "colour=red\nsource.shape=round\nbootstrap.servers=a:1\nsource.bootstrap.servers=b:1\nclient.id=\\u12\n")
	_, err = readMirror(bad)
	wantLines(t, err, bad+`: line 5: \u needs four hexadecimal digits`, bad+": line 1: colour: unknown key", bad+": line 2: source.shape: unknown key",
		bad+": line 4: source.bootstrap.servers: stands there as bootstrap.servers too")
	_, err = readMirror(bad + "x")
	wantLines(t, err, bad+"x: no such file or directory")
}

// wantLines wants the parts of an error.
func wantLines(t *testing.T, err error, want ...string) {
	t.Helper()
	var got []string
	for _, e := range flat(err) {
		got = append(got, e.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCheckMirror: what another process is to open is checked as far as can be seen from here.
func TestCheckMirror(t *testing.T) {
	const login = `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password=`
	secured := func(more ...string) map[string]string {
		m := map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
			"sasl.jaas.config": "${file:/etc/secrets:login}"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	const advice = "everybody who reads the state topic would read it: write a reference, ${file:/path:key} or ${env:NAME}"
	for _, tt := range []struct {
		name string
		def  coordinator.Definition
		want []string
	}{
		{"nothing", coordinator.Definition{}, []string{"bootstrap.servers: is needed"}},
		{"good", coordinator.Definition{Source: secured("sasl.jaas.config", login+`"${env:PASSWORD}";`, "ssl.truststore.type", "PEM", "ssl.truststore.location", "/not/here.pem",
			"ssl.keystore.type", "PEM", "ssl.keystore.location", "/not/here.pem")}, nil},
		{"inline", coordinator.Definition{Source: secured("ssl.truststore.type", "PEM", "ssl.truststore.certificates", "${file:/a:b}",
			"ssl.keystore.type", "PEM", "ssl.keystore.certificate.chain", "any", "ssl.keystore.key", "${env:KEY}")}, nil},
		{"plain secrets", coordinator.Definition{Source: secured("sasl.jaas.config", login+`"s3cret";`, "ssl.keystore.type", "PEM",
			"ssl.keystore.certificate.chain", "${env:CHAIN}", "ssl.keystore.key", "s3cret")},
			[]string{"sasl.jaas.config: the password stands there as it is, and " + advice, "ssl.keystore.key: the private key stands there as it is, and " + advice}},
		{"bad references", coordinator.Definition{Source: secured("sasl.jaas.config", login+`"${vault:x}";`, "client.id", "${env:ID}", "ssl.truststore.type", "PEM",
			"ssl.truststore.location", "${file:here:x}", "ssl.keystore.type", "PEM", "ssl.keystore.location", "${env:}")}, []string{
			"client.id: references are for secrets",
			`sasl.jaas.config: ${vault:x}: "vault" is not one of file, env`,
			"ssl.keystore.location: ${env:} names no variable",
			"ssl.truststore.location: ${file:here:x}: want ${file:/path:key}",
		}},
		{"bad values", coordinator.Definition{Source: map[string]string{"bootstrap.servers": "a", "security.protocol": "TLS"},
			Destination: map[string]string{"gap.fill": "holes", "start.fill.max": "-1", "truncation": "join", "x": ""},
			Config:      map[string]string{"local.writes": "discard", "scratch": "allow", "unclean.recovery": "orders"}}, []string{
			`security.protocol: "TLS" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL`,
			`bootstrap.servers: Bootstrap[0] "a": want host:port`,
			`gap.fill: "holes" is not one of auto, markers, phantoms, fail`,
			`start.fill.max: "-1" is no number above 0`,
			`truncation: "join" is not one of refuse, rebuild`,
			"x: unknown key",
			"local.writes: needs truncation=rebuild", "scratch: needs truncation=rebuild", "unclean.recovery: needs truncation=rebuild",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantLines(t, checkMirror(tt.def), tt.want...) })
	}
}

// TestResolve: references become what they refer to when a mirror is opened, within the
// folders that are allowed, and no error tells a secret.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	secrets := filepath.Join(dir, "secrets.properties")
	if err := os.WriteFile(secrets, []byte("password=s3cret\nkey=v"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KAFKA_MIRRORS_TEST", "alice")
	def := coordinator.Definition{Source: map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
		"sasl.jaas.config": `PlainLoginModule required username="${env:KAFKA_MIRRORS_TEST}" password="${file:` + secrets + `:password}";`}}
	for _, r := range []resolver{{}, {folders: []string{"/none", dir}}} {
		cfg, err := r.sourceConfig(def)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plain.Mechanism{Username: "alice", Password: "s3cret"}, cfg.SASL); diff != "" {
			t.Error(diff)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(secrets, link); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		"${file:" + secrets + ":password}": ": is in none of the folders of --secrets",
		"${file:" + link + ":password}":    ": is in none of the folders of --secrets",
		"${file:" + dir + "/no:password}":  ": no such file or directory",
		"${env:KAFKA_MIRRORS_NONE}":        ": is not set here",
	} {
		if _, err := (resolver{folders: []string{filepath.Dir(link)}}).resolve(value); err == nil || !strings.HasSuffix(err.Error(), value+want) {
			t.Errorf("%s: %v", value, err)
		}
	}
	if _, err := (resolver{}).resolve("${file:" + secrets + ":none}"); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a key that is not there: %v", err)
	}
	var cfg kafka.Config
	if err := setDestination(&cfg, map[string]string{"gap.fill": "phantoms", "start.fill.max": "7", "truncation": "rebuild"}); err != nil ||
		cfg.GapFill != kafka.GapPhantoms || cfg.MaxStartFill != 7 || cfg.Truncation != kafka.Rebuild {
		t.Errorf("%v: %+v", err, cfg)
	}
}
