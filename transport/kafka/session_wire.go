package kafka

import (
	"maps"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lay writes the next request: everything wanted, or what changed.
func (s *session) lay(from *fetcher.FetchRequest, full bool) {
	r := &s.req
	topics, gone := r.Topics[:0], r.ForgottenTopics[:0]
	r.Default()
	r.Version = s.version
	if s.named {
		r.Version = min(s.version, byNameFetch)
	}
	r.MaxWaitMillis = int32(from.MaxWait.Milliseconds())
	r.MinBytes, r.MaxBytes = from.MinBytes, from.MaxBytes
	if from.Committed {
		r.IsolationLevel = 1
	}
	r.SessionID, r.SessionEpoch = s.id, s.epoch
	if full {
		everything := slices.SortedFunc(maps.Values(s.wanted), func(a, b fetcher.Want) int { return a.Partition.Compare(b.Partition) })
		for _, w := range everything {
			topics = addWant(topics, w)
		}
		r.Topics, r.ForgottenTopics = topics, gone
		return
	}
	for _, w := range from.Changed {
		topics = addWant(topics, w)
	}
	for _, p := range from.Forgotten {
		if _, again := s.wanted[p]; !again {
			gone = addGone(gone, p, s.byName[p.Topic].id)
		}
	}
	r.Topics, r.ForgottenTopics = topics, gone
}

// addWant appends to the last topic when it is the same one. A topic may stand in
// a fetch request more than once: brokers read it as a list of partitions.
func addWant(topics []kmsg.FetchRequestTopic, w fetcher.Want) []kmsg.FetchRequestTopic {
	n := len(topics)
	if n == 0 || topics[n-1].Topic != w.Partition.Topic || topics[n-1].TopicID != w.TopicID {
		topics = growTopics(topics)
		t := &topics[n]
		t.Topic, t.TopicID = w.Partition.Topic, w.TopicID
		n++
	}
	t := &topics[n-1]
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = w.Partition.Partition, w.Offset, w.MaxBytes
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = w.LeaderEpoch, w.LastEpoch
	t.Partitions = append(t.Partitions, p)
	return topics
}

// growTopics adds an empty topic and keeps the memory of the one that stood there
// in an earlier request.
func growTopics(topics []kmsg.FetchRequestTopic) []kmsg.FetchRequestTopic {
	if n := len(topics); n < cap(topics) {
		topics = topics[:n+1]
		topics[n].Partitions = topics[n].Partitions[:0]
		return topics
	}
	return append(topics, kmsg.FetchRequestTopic{})
}

func addGone(gone []kmsg.FetchRequestForgottenTopic, p cluster.Partition, id cluster.TopicID) []kmsg.FetchRequestForgottenTopic {
	n := len(gone)
	if n == 0 || gone[n-1].Topic != p.Topic {
		gone = append(gone, kmsg.FetchRequestForgottenTopic{Topic: p.Topic, TopicID: id})
		n++
	}
	gone[n-1].Partitions = append(gone[n-1].Partitions, p.Partition)
	return gone
}

// hand makes the caller's answer: records stay where they arrived, in the frame.
func (s *session) hand(frame *wire.Frame) *fetcher.FetchResponse {
	return &fetcher.FetchResponse{
		Size: frame.Size(), RoundTrip: s.conn.RoundTrip(), Release: frame.Release, Partitions: s.partitions(frame.Bytes()),
		Checksums: frame,
		Compares:  s.req.Version >= comparingFetch, ByID: s.req.Version > byNameFetch,
	}
}

// comparingFetch is the first version in which brokers compare the last fetched
// epoch with their log (KIP-595).
const comparingFetch = 12

// place is where in b a piece of it lies, from at on, which is a few bytes behind it at
// most when the pieces come in their order; at for one without bytes.
func place(b []byte, at int, piece []byte) int {
	if len(piece) == 0 {
		return at
	}
	for &b[at] != &piece[0] {
		at++
	}
	return at
}

// partitions are the parts of an answer, whose bytes are b.
func (s *session) partitions(b []byte) []fetcher.Fetched {
	total := 0
	for i := range s.answer.Topics {
		total += len(s.answer.Topics[i].Partitions)
	}
	all, at := make([]fetcher.Fetched, 0, total), 0
	for i := range s.answer.Topics {
		t := &s.answer.Topics[i]
		name, ok := s.topicOf(t)
		if !ok {
			continue
		}
		for k := range t.Partitions {
			part := s.fetched(name, &t.Partitions[k])
			part.At = place(b, at, part.Records)
			at = part.At + len(part.Records)
			all = append(all, part)
		}
	}
	return all
}

// topicOf gives the name as the caller wrote it. The one in the answer lies in
// the frame and ends with it.
func (s *session) topicOf(t *kmsg.FetchResponseTopic) (string, bool) {
	if s.req.Version > byNameFetch {
		name, ok := s.byID[t.TopicID]
		return name, ok
	}
	topic, ok := s.byName[t.Topic]
	return topic.name, ok
}

func (s *session) fetched(topic string, p *kmsg.FetchResponseTopicPartition) fetcher.Fetched {
	f := fetcher.Fetched{
		Partition:     cluster.Partition{Topic: topic, Partition: p.Partition},
		HighWatermark: p.HighWatermark,
		LogStart:      p.LogStartOffset,
		Diverging:     cluster.EpochEnd{Epoch: p.DivergingEpoch.Epoch, EndOffset: p.DivergingEpoch.EndOffset},
		Leader:        cluster.Leader{Broker: p.CurrentLeader.LeaderID, Epoch: p.CurrentLeader.LeaderEpoch},
		LastStable:    p.LastStableOffset,
		Records:       p.RecordBatches,
	}
	f.Aborted = abortedOf(p)
	f.Err = wire.CodeError(p.ErrorCode)
	if f.Leader.Broker >= 0 && f.Leader.Broker != s.broker {
		s.learn(f.Partition, f.Leader)
	}
	return f
}
