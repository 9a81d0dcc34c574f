package kafkatest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// authority is a cluster's own certificate authority with one server
// certificate, for all nodes.
type authority struct {
	ca              *x509.Certificate
	key             *ecdsa.PrivateKey
	caPEM           string
	certPEM, keyPEM string
}

func newAuthority() (*authority, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root := certificate("kafkatest authority", 1)
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		return nil, err
	}
	a := &authority{ca: ca, key: caKey, caPEM: block("CERTIFICATE", caDER)}
	der, key, err := a.issue("localhost")
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	a.certPEM, a.keyPEM = block("CERTIFICATE", der), block("PRIVATE KEY", keyDER)
	return a, err
}

// issue signs a certificate of a name, for this machine.
func (a *authority) issue(name string) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leaf := certificate(name, time.Now().UnixNano())
	leaf.DNSNames, leaf.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.ca, key.Public(), a.key)
	return der, key, err
}

func certificate(name string, serial int64) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}

func block(kind string, der []byte) string {
	return string(bytes.TrimSpace(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func (a *authority) serverProperties() properties {
	return properties{
		"ssl.keystore.type":              "PEM",
		"ssl.keystore.certificate.chain": a.certPEM,
		"ssl.keystore.key":               a.keyPEM,
	}
}

// mutualProperties have brokers and controllers know each other by certificates.
func (a *authority) mutualProperties(o Options) properties {
	return properties{
		"listener.security.protocol.map":           "CLIENT:" + o.protocol() + ",INTERNAL:SSL,CONTROLLER:SSL",
		"ssl.truststore.type":                      "PEM",
		"ssl.truststore.certificates":              a.caPEM,
		"listener.name.internal.ssl.client.auth":   "required",
		"listener.name.controller.ssl.client.auth": "required",
	}
}

func (a *authority) clientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.ca)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
