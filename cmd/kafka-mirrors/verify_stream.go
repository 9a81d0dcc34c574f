package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/verify"
)

// fetching reads partitions for a comparison by fetch sessions, each on a connection
// of its own: single reads of many partitions would share one to each broker, which
// answers them one after the other.
type fetching struct {
	verify.Reader
	source opener
}

// opener is what a fetching needs of a source.
type opener interface {
	Leaders(ctx context.Context, partitions []cluster.Partition, fresh bool) ([]fetcher.LeaderAnswer, error)
	Open(ctx context.Context, broker int32) (fetcher.Session, error)
}

// Stream connects when it is first read.
func (f fetching) Stream(p cluster.Partition, maxBytes int32) verify.Stream {
	return &fetchStream{source: f.source, p: p, maxBytes: maxBytes}
}

// fetchStream follows a partition from leader to leader.
type fetchStream struct {
	source   opener
	p        cluster.Partition
	maxBytes int32
	leader   fetcher.LeaderAnswer
	session  fetcher.Session // nil between leaders
	looked   bool            // at the leaders, once
}

// A stream looks for the leader for about 10 s, which is longer than an election
// takes, and a broker to be found dead.
const streamTries = 12

func streamPause(try int) time.Duration { return min(100*time.Millisecond<<try, time.Second) }

// Next fetches from an offset on.
func (s *fetchStream) Next(ctx context.Context, offset int64) ([]byte, func(), error) {
	for try := 0; ; try++ {
		b, release, err := s.fetch(ctx, offset)
		if err == nil {
			return b, release, nil
		}
		s.Close()
		if !passing(err) || try == streamTries || !pause(ctx, streamPause(try)) {
			return nil, nil, err
		}
	}
}

// passing reports errors that another look at the leaders mends.
func passing(err error) bool {
	for _, e := range []error{
		cluster.ErrNotLeader, cluster.ErrLeaderEpoch, cluster.ErrUnreachable, cluster.ErrUnavailable, cluster.ErrUnknownOutcome, cluster.ErrTimeout,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// pause waits and reports whether ctx is still good.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// streamWait is how long a broker may hold an answer when there is nothing to read.
const streamWait = 500 * time.Millisecond

func (s *fetchStream) fetch(ctx context.Context, offset int64) ([]byte, func(), error) {
	if s.session == nil {
		if err := s.open(ctx); err != nil {
			return nil, nil, err
		}
	}
	answer, err := s.session.Fetch(ctx, &fetcher.FetchRequest{
		MaxWait: streamWait, MinBytes: 1, MaxBytes: s.maxBytes,
		Changed: []fetcher.Want{{
			Partition: s.p, TopicID: s.leader.TopicID, Offset: offset, LeaderEpoch: s.leader.Epoch, LastEpoch: cluster.NoEpoch, MaxBytes: s.maxBytes,
		}},
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range answer.Partitions {
		one := &answer.Partitions[i]
		if one.Partition == s.p && one.Err == nil {
			return one.Records, answer.Release, nil
		}
		if one.Partition == s.p {
			answer.Release()
			return nil, nil, fmt.Errorf("%v: %w", s.p, one.Err)
		}
	}
	return nil, answer.Release, nil // a session leaves out what has nothing new
}

func (s *fetchStream) open(ctx context.Context) error {
	leaders, err := s.source.Leaders(ctx, []cluster.Partition{s.p}, s.looked)
	s.looked = true
	if err == nil {
		err = leaders[0].Err
	}
	if err != nil {
		return err
	}
	s.leader = leaders[0]
	s.session, err = s.source.Open(ctx, s.leader.Broker)
	return err
}

// Close ends the session. What was lent stays.
func (s *fetchStream) Close() error {
	if s.session == nil {
		return nil
	}
	session := s.session
	s.session = nil
	return session.Close()
}

// prefixed finds the topics of a cluster under names with a prefix, as MirrorMaker
// gives them.
type prefixed struct {
	fetching
	prefix string
}

func (r prefixed) of(p cluster.Partition) cluster.Partition {
	p.Topic = r.prefix + p.Topic
	return p
}

func (r prefixed) Read(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, error) {
	return r.fetching.Read(ctx, r.of(p), offset, maxBytes)
}

func (r prefixed) LogOffsets(ctx context.Context, p cluster.Partition) (cluster.Offsets, error) {
	return r.fetching.LogOffsets(ctx, r.of(p))
}

func (r prefixed) Stream(p cluster.Partition, maxBytes int32) verify.Stream {
	return r.fetching.Stream(r.of(p), maxBytes)
}
