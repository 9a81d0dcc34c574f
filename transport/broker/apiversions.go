package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	codeUnsupported = 35  // UNSUPPORTED_VERSION
	codeRebootstrap = 129 // REBOOTSTRAP_REQUIRED
)

// apiVersions answers ApiVersions as ourselves: a client asks whether we are the
// broker of that id in that cluster (version 5, KIP-1242), and a real broker would
// say no, so that he began anew for ever. What can be asked is what a real broker
// offers, since it will answer; so it is asked, without the name.
func (c *client) apiVersions(ctx context.Context, h header, b []byte) error {
	req := kmsg.NewPtrApiVersionsRequest()
	if h.version > req.MaxVersion() {
		return c.reply(h, unsupportedVersion(), 0)
	}
	if h.version < 5 {
		return c.pass(ctx, b)
	}
	req.SetVersion(h.version)
	if len(h.body) == 0 || h.body[0] != 0 {
		return fmt.Errorf("%w: ApiVersions with a tagged header", errFrame)
	}
	if err := req.ReadFrom(h.body[1:]); err != nil {
		return fmt.Errorf("%w: ApiVersions: %w", errFrame, err)
	}
	known, err := c.server.id(ctx)
	if err != nil {
		return err
	}
	resp, err := c.askVersions(ctx, h, *req)
	if err != nil {
		return err
	}
	if resp.Version == h.version && misdirected(req, known, c.server.self().Broker) {
		resp.ErrorCode = codeRebootstrap
	}
	return c.reply(h, resp, resp.Version)
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

const maxVersionsAnswer = 1 << 20

// askVersions asks the real broker in the client's words, but for the name.
func (c *client) askVersions(ctx context.Context, h header, req kmsg.ApiVersionsRequest) (*kmsg.ApiVersionsResponse, error) {
	req.ClusterID, req.NodeID = nil, -1
	ask := binary.BigEndian.AppendUint16(nil, uint16(h.key))
	ask = binary.BigEndian.AppendUint16(ask, uint16(h.version))
	ask = binary.BigEndian.AppendUint32(ask, uint32(h.correlation))
	ask = binary.BigEndian.AppendUint16(ask, uint16(len(h.client)))
	ask = append(append(ask, h.client...), 0)
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.real.Close() })
	defer stop()
	if err := writeFrame(c.real, req.AppendTo(ask)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.real, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if int32(binary.BigEndian.Uint32(head[4:])) != h.correlation || size < 4 || size > maxVersionsAnswer {
		return nil, errNoAnswer
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(c.real, body); err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(h.version)
	if len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == codeUnsupported {
		resp.SetVersion(0) // it knows older ones only, and says so in the oldest form
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return resp, nil
}

// reply sends an answer of our own. ApiVersions has no flexible response header.
func (c *client) reply(h header, resp kmsg.Response, version int16) error {
	resp.SetVersion(version)
	c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.FrameTimeout))
	return writeFrame(c.conn, resp.AppendTo(binary.BigEndian.AppendUint32(nil, uint32(h.correlation))))
}
