package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/clustermirror/mirror/transport/broker"
)

// Kafka's numbers of the protocols with TLS.
const (
	protocolSSL     = 1
	protocolSASLSSL = 3
)

func secured(l broker.Listener) bool {
	return l.Protocol == protocolSSL || l.Protocol == protocolSASLSSL
}

// secure is TLS for each of our listeners, nil for those without. Only between brokers
// certificates are asked for: those of clients cannot be relayed.
func (f *joinFlags) secure(listeners []broker.Listener) ([]*tls.Config, error) {
	var first broker.Listener
	var with []string
	for n, l := range listeners {
		if n == 0 {
			first = l
		}
		if secured(l) {
			with = append(with, l.Name)
		}
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(with) == 0 && f.cert+f.key+f.clientCA != "":
		bad("--join-cert, --join-key and --join-client-ca need a --join-listener with SSL or SASL_SSL")
	case len(with) > 0 && f.cert == "":
		bad("--join-cert: is needed for listeners %v, with the name under which --join-listener is reached", with)
	case f.clientCA != "" && first.Protocol != protocolSSL:
		bad("--join-client-ca: only brokers on a listener with SSL are known by their certificates, and the first --join-listener is none")
	}
	if len(errs) > 0 || len(with) == 0 {
		return nil, errors.Join(errs...)
	}
	cert, err := f.certificate()
	if err != nil {
		return nil, err
	}
	out := make([]*tls.Config, len(listeners))
	for n, l := range listeners {
		if !secured(l) {
			continue
		}
		out[n] = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
		if n == 0 && f.clientCA != "" {
			out[n].ClientAuth = tls.VerifyClientCertIfGiven
			if out[n].ClientCAs, err = authorities(f.clientCA); err != nil {
				return nil, fmt.Errorf("--join-client-ca: %w", err)
			}
		}
	}
	return out, nil
}

// certificate is ours; the key may stand in the same file.
func (f *joinFlags) certificate() (tls.Certificate, error) {
	key := f.key
	if key == "" {
		key = f.cert
	}
	cert, err := tls.LoadX509KeyPair(f.cert, key)
	if err != nil {
		return cert, fmt.Errorf("--join-cert and --join-key: no PEM certificate with an unencrypted private key: %w", err)
	}
	return cert, nil
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}

// controllersAt has controllers reached as a file says.
func (f *joinFlags) controllersAt(cfg *broker.Config) error {
	if f.controllersConfig == "" {
		return nil
	}
	at, err := readConfig(f.controllersConfig)
	if err != nil {
		return placed("--join-controllers-config "+f.controllersConfig, err)
	}
	cfg.ControllerSecurity, cfg.ControllerTLS, cfg.ControllerSASL = true, at.TLS, at.SASL
	if len(cfg.Controllers) == 0 {
		cfg.Controllers = at.Bootstrap
	}
	return nil
}
