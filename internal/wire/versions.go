package wire

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fetchKey            = 1
	apiVersionsKey      = 18
	unsupportedVersion  = Code(35)
	firstVersionRequest = 3 // version 4 and later only add details nobody here needs
)

type versionRange struct{ min, max int16 }

// MaxVersion is the newest version of a request the broker offers, -1 when it
// does not offer the request.
func (c *Conn) MaxVersion(key int16) int16 {
	if r, ok := c.versions[key]; ok {
		return r.max
	}
	return -1
}

// Versions are the newest version of each request that the broker offers.
func (c *Conn) Versions() map[int16]int16 {
	all := make(map[int16]int16, len(c.versions))
	for key, r := range c.versions {
		all[key] = r.max
	}
	return all
}

// MinVersion is the oldest version of a request the broker offers, -1 when it
// does not offer the request.
func (c *Conn) MinVersion(key int16) int16 {
	if r, ok := c.versions[key]; ok {
		return r.min
	}
	return -1
}

// pick is the newest version of a request that both sides know.
func (c *Conn) pick(req kmsg.Request) (int16, error) {
	r, ok := c.versions[req.Key()]
	version := min(r.max, req.MaxVersion())
	if !ok || version < r.min {
		return 0, c.refuse(req.Key(), Unsupported, errNoVersion)
	}
	return version, nil
}

// negotiate asks for the versions the broker knows. A broker that does not know
// the version of this very request says so in the form of version 0 and, since
// Kafka 2.4, names the versions of it that it knows (KIP-511).
func (c *Conn) negotiate(ctx context.Context) error {
	version := int16(firstVersionRequest)
	for {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "clustermirror", "1"
		frame, err := c.exchange(ctx, req, version)
		if err != nil {
			return err
		}
		resp, err := parseApiVersions(frame.Bytes(), version)
		frame.Release()
		if err != nil {
			return c.refuse(apiVersionsKey, Protocol, err)
		}
		if Code(resp.ErrorCode) == unsupportedVersion && version > 0 {
			version = fallback(resp, version)
			continue
		}
		if err := CodeError(resp.ErrorCode); err != nil {
			return c.refuse(apiVersionsKey, Protocol, err)
		}
		c.versions = make(map[int16]versionRange, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			c.versions[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
		return nil
	}
}

// fallback is the version to try next, lower than the one refused.
func fallback(resp *kmsg.ApiVersionsResponse, refused int16) int16 {
	for _, k := range resp.ApiKeys {
		if k.ApiKey == apiVersionsKey {
			return max(0, min(k.MaxVersion, refused-1))
		}
	}
	return 0
}

func parseApiVersions(body []byte, version int16) (*kmsg.ApiVersionsResponse, error) {
	if len(body) >= 2 && Code(binary.BigEndian.Uint16(body)) == unsupportedVersion {
		version = 0
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("ApiVersions answer in version %d: %w", version, err)
	}
	return resp, nil
}
