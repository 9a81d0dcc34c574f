package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror/transport/kafka"
)

// connectionHelp is the part of the help about configuration files.
const connectionHelp = `A configuration file is the .properties file of a Java client. Known are
bootstrap.servers, client.id, request.timeout.ms, security.protocol (PLAINTEXT, SSL,
SASL_PLAINTEXT, SASL_SSL), sasl.mechanism (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512),
sasl.jaas.config (PlainLoginModule or ScramLoginModule), and for TLS, all PEM:
ssl.truststore.type=PEM with ssl.truststore.location or .certificates,
ssl.keystore.type=PEM with ssl.keystore.location or .certificate.chain and .key,
ssl.endpoint.identification.algorithm. Any other key is refused.`

// connectionFlags say how to reach one of the two clusters.
type connectionFlags struct {
	side      string // "source" or "destination"
	kafkas    bool   // the flags are called as those of Kafka's own tools, not after the side
	bootstrap []string
	file      string
}

// names are those of the two flags.
func (f *connectionFlags) names() (servers, file string) {
	if f.kafkas {
		return "bootstrap-server", "command-config"
	}
	return f.side, f.side + "-config"
}

func (f *connectionFlags) register(c *cobra.Command) {
	servers, file := f.names()
	c.Flags().StringSliceVar(&f.bootstrap, servers, nil, "brokers to ask for the "+f.side+" cluster, `host:port[,host:port]`")
	c.Flags().StringVar(&f.file, file, "", "`file` with the settings of a Java client for the "+f.side)
}

// config reads the file, if there is one, and reports everything that is wrong.
func (f *connectionFlags) config() (kafka.Config, error) {
	var (
		cfg  kafka.Config
		errs []error
	)
	servers, file := f.names()
	origin := "--" + servers
	if f.file != "" {
		var err error
		cfg, err = readConfig(f.file)
		errs = append(errs, placed(f.file, err))
		origin = f.file + ": bootstrap.servers"
	}
	if len(f.bootstrap) > 0 {
		cfg.Bootstrap, origin = f.bootstrap, "--"+servers
	}
	if len(cfg.Bootstrap) == 0 {
		errs = append(errs, fmt.Errorf("--%s: is needed, or bootstrap.servers in --%s", servers, file))
	} else if err := cfg.Validate(); err != nil {
		errs = append(errs, placed(origin, err))
	}
	return cfg, errors.Join(errs...)
}

// orStandIn is the configuration with a logger. When it is wrong a stand-in comes with
// the error, so that a caller can still check the rest.
func (f *connectionFlags) orStandIn(logger *slog.Logger) (kafka.Config, error) {
	cfg, err := f.config()
	if err != nil {
		cfg = kafka.Config{Bootstrap: []string{"invalid:1"}}
	}
	cfg.Logger = logger.With("cluster", f.side)
	return cfg, err
}

// open makes the cluster, or a stand-in beside the error, without connecting.
func (f *connectionFlags) open(logger *slog.Logger) (*kafka.Cluster, error) {
	cfg, err := f.orStandIn(logger)
	c, openErr := kafka.New(cfg)
	return c, errors.Join(err, openErr)
}

func readConfig(file string) (kafka.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return kafka.Config{}, withoutPath(err)
	}
	properties, err := parseProperties(string(text))
	cfg, buildErr := newSettings(properties).build()
	return cfg, errors.Join(err, buildErr)
}

// settings are the properties of a file by key. What is taken is marked, so that
// the rest can be refused.
type settings struct {
	of   map[string]property
	used map[string]bool
	bad  []badKey
	// elsewhere: they are for another process, whose files are not looked at, and whose
	// secrets stand there as references.
	elsewhere bool
}

// badKey is what is wrong with a key at a line; line 0 is that of a key which is
// not there.
type badKey struct {
	line int
	err  error
}

func newSettings(properties []property) *settings {
	s := &settings{of: map[string]property{}, used: map[string]bool{}}
	for _, p := range properties {
		s.of[p.key] = p // the last one counts, as in Java
	}
	return s
}

// raw takes a value as it stands; Kafka does not trim passwords.
func (s *settings) raw(key string) string {
	s.used[key] = true
	return s.of[key].value
}

func (s *settings) text(key string) string { return strings.TrimSpace(s.raw(key)) }

func (s *settings) has(key string) bool {
	_, ok := s.of[key]
	return ok
}

// refuse says what is wrong with a key. It must not be given values of secrets.
func (s *settings) refuse(key, format string, args ...any) {
	where, line := key, s.of[key].line
	if line > 0 {
		where = fmt.Sprintf("line %d: %s", line, key)
	}
	s.bad = append(s.bad, badKey{line, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...))})
}

// build turns the settings into a configuration and reports every bad key.
func (s *settings) build() (kafka.Config, error) {
	cfg := kafka.Config{ClientID: s.text("client.id")}
	for _, address := range strings.FieldsFunc(s.text("bootstrap.servers"), func(r rune) bool { return r == ',' || r <= ' ' }) {
		cfg.Bootstrap = append(cfg.Bootstrap, address)
	}
	if s.has("request.timeout.ms") {
		ms, err := strconv.ParseInt(s.text("request.timeout.ms"), 10, 32)
		if err != nil || ms <= 0 {
			s.refuse("request.timeout.ms", "want a number of milliseconds above 0")
		}
		cfg.RequestTimeout = time.Duration(ms) * time.Millisecond
	}
	protocol := strings.ToUpper(s.text("security.protocol"))
	if protocol == "" {
		protocol = "PLAINTEXT"
	}
	known := []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
	if !slices.Contains(known, protocol) {
		s.refuse("security.protocol", "%q is not one of %s", protocol, strings.Join(known, ", "))
		protocol = ""
	}
	cfg.TLS = s.tls(protocol)
	cfg.SASL = s.sasl(protocol)
	for key := range s.of {
		if !s.used[key] {
			s.refuse(key, "unknown key")
		}
	}
	slices.SortStableFunc(s.bad, func(a, b badKey) int { return a.line - b.line })
	var errs []error
	for _, b := range s.bad {
		errs = append(errs, b.err)
	}
	return cfg, errors.Join(errs...)
}

// sasl is the login; protocol is empty when it is not known what it should be.
func (s *settings) sasl(protocol string) sasl.Mechanism {
	mechanism, jaas := strings.ToUpper(s.text("sasl.mechanism")), s.raw("sasl.jaas.config")
	if !strings.HasPrefix(protocol, "SASL_") {
		for _, key := range []string{"sasl.mechanism", "sasl.jaas.config"} {
			if protocol != "" && s.has(key) {
				s.refuse(key, "needs security.protocol SASL_SSL or SASL_PLAINTEXT, but it is %s", protocol)
			}
		}
		return nil
	}
	module := "ScramLoginModule"
	switch mechanism {
	case "PLAIN":
		module = "PlainLoginModule"
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
	default:
		s.refuse("sasl.mechanism", "%q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", mechanism)
		return nil
	}
	if jaas == "" {
		s.refuse("sasl.jaas.config", "is needed with security.protocol %s", protocol)
		return nil
	}
	if s.elsewhere && isReference(jaas) {
		return nil
	}
	l, err := parseJAAS(jaas)
	if err == nil {
		var username, password string
		if username, password, err = l.credentials(module); err == nil {
			return s.mechanism(mechanism, username, password)
		}
	}
	for _, e := range flat(err) {
		s.refuse("sasl.jaas.config", "%w", e)
	}
	return nil
}

func (s *settings) mechanism(name, username, password string) sasl.Mechanism {
	if name == "PLAIN" {
		return plain.Mechanism{Username: username, Password: password}
	}
	algorithm := scram.SHA256
	if name == "SCRAM-SHA-512" {
		algorithm = scram.SHA512
	}
	m, err := scram.Mechanism(algorithm, username, password)
	if err != nil {
		// The reason may quote what could not be prepared.
		s.refuse("sasl.jaas.config", "user name or password has characters that SCRAM does not allow")
		return nil
	}
	return m
}
