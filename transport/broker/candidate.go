package broker

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/preflight"
	"github.com/clustermirror/mirror/topics"
)

// Client is a cluster as a client of it sees it before a mirror begins; a Cluster of transport/kafka is
// one.
type Client interface {
	Admin
	fetcher.Log
	topics.Rehearsal
	preflight.Inspector
}

// Candidate is a cluster that is to be joined, for a preflight: it is looked at as a client
// does, and whether it could be joined. It is no destination to mirror to: it is
// written as a client would.
type Candidate struct {
	Client
	cfg  Config
	wait time.Duration // joinableWait
}

// NewCandidate connects to nothing yet. secure is used by the listener of the same index, as
// DestinationConfig.TLS. The error lists every bad field. Identities may be nil; they are
// only read.
func NewCandidate(cfg Config, secure []*tls.Config, client Client) (*Candidate, error) {
	if cfg.Identities == nil {
		cfg.Identities = new(MemoryIdentities)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Candidate{client, cfg.servedBy(ServerConfig{}, secure), joinableWait}, nil
}

// Traits are those of a Destination.
func (c *Candidate) Traits() fetcher.Traits { return traits }

// Inspect is the client's. Nothing of what holds for clients that write is told.
func (c *Candidate) Inspect(ctx context.Context, topics, groups []string) (*preflight.Inspection, error) {
	in, err := c.Client.Inspect(ctx, topics, groups)
	if in != nil {
		in.Client = nil
	}
	return in, err
}

// joinableWait is how long the controllers may take to answer.
const joinableWait = 20 * time.Second

// Joinable says all that a Membership would be refused for, without joining.
func (c *Candidate) Joinable(ctx context.Context) (why []error) {
	begin := func(m *Membership, ctx context.Context) error {
		m.starting = c.wait
		image, err := m.first(ctx)
		if err != nil {
			return err
		}
		checks := append(m.checks(ctx, image), func() error {
			all, err := m.cfg.Identities.All(ctx)
			if err != nil {
				return err
			}
			_, err = claimant{name: m.cfg.Name, holder: m.holder, ids: m.cfg.IDs, taken: m.cfg.others()}.choose(image, all, func(Kept) time.Duration { return time.Hour })
			return err
		})
		for _, check := range checks {
			why = append(why, apart(check())...)
		}
		return nil
	}
	if err := insideBy(ctx, c.cfg, begin, func(context.Context, *Membership) error { return nil }); err != nil {
		why = append(why, err)
	}
	return why
}

// apart takes joined errors apart: those that are told on a line each.
func apart(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		return joined.Unwrap()
	}
	return []error{err}
}
