package broker

import (
	"context"
	"crypto/x509"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	codeUnsupported = 35  // UNSUPPORTED_VERSION
	codeRebootstrap = 129 // REBOOTSTRAP_REQUIRED
)

// apiVersions answers ApiVersions as ourselves: a client asks whether we are the
// broker of that id in that cluster (version 5, KIP-1242), and a real broker would
// say no, so that he began anew for ever. What can be asked is what a real broker
// offers, since it will answer; so it is asked, without the name. Of the requests
// that we have to understand, no newer versions are offered than we know.
func (c *client) apiVersions(ctx context.Context, h header, b []byte) error {
	req := kmsg.NewPtrApiVersionsRequest()
	if h.version > req.MaxVersion() {
		return c.reply(h, unsupportedVersion(), 0)
	}
	decoded, err := c.decode(ctx, h, req)
	if err != nil {
		return err
	}
	decoded()
	c.redirect = req.ClientSoftwareName == javaSoftware
	if cert := c.betweenBrokers(); cert != nil {
		return c.brokerVersions(ctx, h, req, cert)
	}
	known := ""
	if h.version >= 5 {
		if known, err = c.server.id(ctx); err != nil {
			return err
		}
		ask := *req
		ask.ClusterID, ask.NodeID = nil, -1
		b = wrap(h, &ask)
	}
	answer, err := c.greet(ctx, b)
	if err != nil {
		return err
	}
	defer func() { c.server.answers.give(answer.held) }()
	resp, err := readVersions(answer.bytes, h.version)
	if err != nil {
		return err
	}
	changed := capVersions(resp)
	if resp.Version == h.version && h.version >= 5 && misdirected(req, known, c.server.self().Broker) {
		resp.ErrorCode, changed = codeRebootstrap, true
	}
	if !changed {
		return c.relay(answer.bytes)
	}
	return c.reply(h, resp, resp.Version)
}

// brokerVersions answers a broker that is known by his certificate, in whose name nobody
// can be asked: with what the broker that he is tells us.
func (c *client) brokerVersions(ctx context.Context, h header, req *kmsg.ApiVersionsRequest, cert *x509.Certificate) error {
	if err := c.isBroker(ctx, cert); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.server.patience)
	defer cancel()
	conn, err := c.server.follower(bounded, c.proof.replica)
	if err != nil {
		return err
	}
	defer conn.Close()
	if h.version > conn.MaxVersion(req.Key()) {
		return c.reply(h, unsupportedVersion(), 0)
	}
	ask := *req
	ask.ClusterID, ask.NodeID = nil, -1
	answer, err := conn.DoVersion(bounded, &ask, h.version)
	if err != nil {
		return err
	}
	known, err := c.server.id(bounded)
	if err != nil {
		return err
	}
	resp := answer.(*kmsg.ApiVersionsResponse)
	capVersions(resp)
	if misdirected(req, known, c.server.self().Broker) {
		resp.ErrorCode = codeRebootstrap
	}
	return c.reply(h, resp, h.version)
}

// greet asks for the versions. A real broker that dies just then is not the client's
// affair, who would see us close his first connection: before he has said anything
// else, another one does as well.
func (c *client) greet(ctx context.Context, b []byte) (answer request, err error) {
	const tries = 3
	for range tries {
		if answer, err = c.consult(ctx, b); err == nil || c.said || ctx.Err() != nil || c.real == nil {
			break
		}
		c.real.Close()
		c.real = nil
	}
	return answer, err
}

// javaSoftware is how Kafka's own client calls itself. It goes back to the leader
// when a follower that it was sent to dies; others were seen to wait for it.
const javaSoftware = "apache-kafka-java"

// capVersions offers no newer versions of what we may have to answer than we know.
func capVersions(resp *kmsg.ApiVersionsResponse) (changed bool) {
	for n := range resp.ApiKeys {
		k := &resp.ApiKeys[n]
		if _, ok := looked[kmsg.Key(k.ApiKey)]; !ok {
			continue
		}
		if most := kmsg.RequestForKey(k.ApiKey).MaxVersion(); k.MaxVersion > most {
			k.MaxVersion, changed = most, true
		}
	}
	return changed
}

// misdirected reports that a client takes us for somebody else. It is pure.
func misdirected(req *kmsg.ApiVersionsRequest, cluster string, self int32) bool {
	return req.ClusterID != nil && *req.ClusterID != cluster || req.NodeID >= 0 && req.NodeID != self
}

// unsupportedVersion is the answer to a version that nobody knows, in the form of
// version 0, with the versions of this very request (KIP-511).
func unsupportedVersion() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = codeUnsupported
	one := kmsg.NewApiVersionsResponseApiKey()
	one.ApiKey, one.MaxVersion = int16(kmsg.ApiVersions), kmsg.NewPtrApiVersionsRequest().MaxVersion()
	resp.ApiKeys = append(resp.ApiKeys, one)
	return resp
}

// readVersions reads an answer. A broker that knows older versions only says so in
// the oldest form.
func readVersions(b []byte, version int16) (*kmsg.ApiVersionsResponse, error) {
	if len(b) >= 6 && int16(binary.BigEndian.Uint16(b[4:])) == codeUnsupported {
		version = 0
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	return resp, readAnswerBody(b, version, resp)
}
