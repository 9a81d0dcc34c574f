package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
)

// tlsKeys are the ssl.* keys that are known.
func tlsKeys() []string {
	return []string{
		"ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates",
		"ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key",
		"ssl.endpoint.identification.algorithm",
	}
}

// tls is the TLS configuration; nil without TLS. protocol is empty when it is
// not known what it should be.
func (s *settings) tls(protocol string) *tls.Config {
	for _, key := range tlsKeys() {
		s.used[key] = true
	}
	if protocol != "SSL" && protocol != "SASL_SSL" {
		for _, key := range tlsKeys() {
			if protocol != "" && s.has(key) {
				s.refuse(key, "needs security.protocol SSL or SASL_SSL, but it is %s", protocol)
			}
		}
		return nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.truststore()}
	if cert, ok := s.keystore(); ok {
		cfg.Certificates = []tls.Certificate{cert}
	}
	if s.has("ssl.endpoint.identification.algorithm") {
		switch algorithm := s.text("ssl.endpoint.identification.algorithm"); strings.ToLower(algorithm) {
		case "https":
		case "":
			anyName(cfg)
		default:
			s.refuse("ssl.endpoint.identification.algorithm", "%q is neither https nor empty", algorithm)
		}
	}
	return cfg
}

// anyName verifies the broker's certificate chain as before, but not that it was
// made for the broker's name.
func anyName(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the broker has no certificate")
		}
		opts := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(opts)
		return err
	}
}

// truststore is nil, the system's certificates, when none is given.
func (s *settings) truststore() *x509.CertPool {
	const location, inline = "ssl.truststore.location", "ssl.truststore.certificates"
	pem, key, ok := s.pem("ssl.truststore.type", location, inline)
	if !ok {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		s.refuse(key, "holds no PEM certificate")
	}
	return pool
}

// keystore is our own certificate.
func (s *settings) keystore() (tls.Certificate, bool) {
	const location, chain, private = "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key"
	certs, key, ok := s.pem("ssl.keystore.type", location, chain)
	if !ok {
		if s.has(private) && !s.has(chain) && !s.has(location) {
			s.refuse(private, "needs %s", chain)
		}
		return tls.Certificate{}, false
	}
	secret := certs
	if key == chain {
		if !s.has(private) {
			s.refuse(chain, "needs %s", private)
			return tls.Certificate{}, false
		}
		secret = []byte(s.raw(private))
	} else if s.has(private) {
		s.refuse(private, "and %s exclude each other", location)
	}
	if s.elsewhere && isReference(string(secret)) {
		return tls.Certificate{}, false
	}
	cert, err := tls.X509KeyPair(certs, secret)
	if err != nil {
		s.refuse(key, "no usable certificate with an unencrypted private key: %w", err)
	}
	return cert, err == nil
}

// pem gives the PEM text of a store, from a file or inline, and the key it was
// found under.
func (s *settings) pem(typeKey, location, inline string) (text []byte, key string, ok bool) {
	key = location
	switch {
	case s.has(location) && s.has(inline):
		s.refuse(inline, "and %s exclude each other", location)
		return nil, "", false
	case s.has(inline):
		key = inline
	case !s.has(location):
		if s.has(typeKey) {
			s.refuse(typeKey, "needs %s or %s", location, inline)
		}
		return nil, "", false
	}
	if !strings.EqualFold(s.text(typeKey), "PEM") {
		s.refuse(key, "needs %s=PEM; keystores of Java (JKS, PKCS12) are not read", typeKey)
		return nil, "", false
	}
	if s.elsewhere && (key == location || hasReference(s.raw(key))) {
		return nil, key, false
	}
	if key == inline {
		return []byte(s.raw(inline)), key, true
	}
	text, err := os.ReadFile(s.text(location))
	if err != nil {
		s.refuse(location, "%w", err)
		return nil, "", false
	}
	return text, key, true
}
