package broker

import (
	"context"
	"slices"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

const (
	// settlingFor is how long a client waits for the answer of a leader that does not know its
	// log yet. One that is refused comes again when it thinks fit: franz-go after a second.
	settlingFor = time.Second
	// settlingSoon is how long it waits where we do not know of our election yet.
	settlingSoon = 100 * time.Millisecond
)

// settled waits until we know the logs of partitions that clients take us for the leader of.
func (s *Server) settled(ctx context.Context, names []cluster.Partition) {
	for began := time.Now(); ctx.Err() == nil; pause(ctx, comingLook) {
		since := time.Since(began)
		if !slices.ContainsFunc(names, func(p cluster.Partition) bool { return s.settles(p, since) }) {
			return
		}
	}
}

// begun waits until we lead what a consumer fetches: records it gets from then on.
func (s *Server) begun(ctx context.Context, parts []wanted) {
	for began := time.Now(); ctx.Err() == nil; pause(ctx, comingLook) {
		since := time.Since(began)
		if !slices.ContainsFunc(parts, func(w wanted) bool { return s.led.find(w.fetchKey) == nil && s.begins(w.fetchKey, since) }) {
			return
		}
	}
}

// settles reports that waiting on may help.
func (s *Server) settles(p cluster.Partition, since time.Duration) bool {
	if led := s.led.byName(p); led != nil {
		return since < settlingFor && led.State().Phase == lead.Gathering
	}
	return s.begins(fetchKey{name: p.Topic, partition: p.Partition}, since)
}

// begins reports so of a partition that we do not lead.
func (s *Server) begins(k fetchKey, since time.Duration) bool {
	if s.coming == nil {
		return false
	}
	soon, elected := s.coming(k)
	return elected && since < settlingFor || soon && since < settlingSoon
}
