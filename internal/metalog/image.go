package metalog

import (
	"encoding/binary"
	"iter"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Image is the cluster as the metadata log has it up to an offset. It is a value:
// it never changes, costs a few words to copy, and may be kept and read by any
// number of goroutines. Slices and pointers inside what it gives are shared: read
// only. The zero Image is a cluster of which nothing is known.
type Image struct {
	// Version counts the images a Reader has shown; 0 is none yet. It grows with
	// every one, also when the log had to be read anew.
	Version uint64
	// Offset is the first offset of the log that is not in this image, Epoch that
	// of the last record in it.
	Offset int64
	Epoch  int32
	// Appended is when the controller wrote the last batch in the image, by its
	// clock and in milliseconds; zero after a snapshot.
	Appended time.Time
	// NextProducerID is the first producer id that no broker has been given.
	NextProducerID int64

	brokers     trie[brokerKey, *Broker]
	topics      trie[topicKey, *Topic]
	names       trie[nameKey, cluster.TopicID]
	partitions  trie[PartitionID, *Partition]
	configs     trie[Resource, map[string]string]
	features    trie[nameKey, int16]
	credentials trie[CredentialID, Credential]
}

type (
	brokerKey int32
	topicKey  cluster.TopicID
	nameKey   string
)

func (k brokerKey) hash() uint64 { return mix(uint64(uint32(k)) + 1) }
func (k topicKey) hash() uint64 {
	return mix(binary.BigEndian.Uint64(k[:8]) ^ mix(binary.BigEndian.Uint64(k[8:])))
}
func (k nameKey) hash() uint64 { return hashString(string(k)) }
func (p PartitionID) hash() uint64 {
	return topicKey(p.Topic).hash() ^ mix(uint64(uint32(p.Partition))+1)
}
func (r Resource) hash() uint64 { return hashString(r.Name) ^ mix(uint64(r.Kind)+1) }
func (c CredentialID) hash() uint64 {
	return hashString(c.User) ^ mix(uint64(c.Mechanism)+1)
}

// PartitionID names a partition by its topic's id, so that a topic that was
// deleted and made again is another one.
type PartitionID struct {
	Topic     cluster.TopicID
	Partition int32
}

// Broker is a registered broker.
type Broker struct {
	ID          int32
	Epoch       int64 // given at registration; grows with every new incarnation
	Incarnation UUID
	Listeners   []Listener
	Features    []Feature // that its software knows
	Rack        string    // empty for none
	// Fenced brokers lead nothing and are in no in-sync set.
	Fenced, InControlledShutdown bool
	Directories                  []UUID
	Cordoned                     []UUID // directories that get no new replicas (KIP-1066)
}

// Listener is one address of a broker. Protocol is Kafka's number: 0 PLAINTEXT,
// 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
type Listener struct {
	Name, Host string
	Port       uint16
	Protocol   int16
}

// Feature is a range of levels.
type Feature struct {
	Name     string
	Min, Max int16
}

// Topic is a topic; its partitions are numbered from 0.
type Topic struct {
	Name       string
	ID         cluster.TopicID
	Partitions int32
}

// Partition is the state of a partition that its controller decides.
type Partition struct {
	Replicas, ISR    []int32 // Replicas in order of preference
	Removing, Adding []int32
	// ELR may be elected although not in the in-sync set; LastKnownELR once might
	// have been (KIP-966).
	ELR, LastKnownELR []int32
	Directories       []UUID // of each replica; empty before metadata version 3.7
	Leader            int32  // -1: none
	LeaderEpoch       int32
	PartitionEpoch    int32
	Recovering        bool // from an unclean election
}

// ResourceKind is what a configuration belongs to, in the numbers of ConfigResource.
type ResourceKind int8

// The kinds of which configurations are kept.
const (
	TopicResource  ResourceKind = 2
	BrokerResource ResourceKind = 4 // named by the broker's id; empty for the cluster's default
)

// Resource is what a configuration belongs to.
type Resource struct {
	Kind ResourceKind
	Name string
}

// Broker is a registered broker by its id.
func (i Image) Broker(id int32) (*Broker, bool) { return i.brokers.get(brokerKey(id)) }

// Brokers are all registered brokers, in no order.
func (i Image) Brokers() iter.Seq[*Broker] { return values(i.brokers) }

// Topic is a topic by its id.
func (i Image) Topic(id cluster.TopicID) (*Topic, bool) { return i.topics.get(topicKey(id)) }

// TopicNamed is a topic by its name.
func (i Image) TopicNamed(name string) (*Topic, bool) {
	id, ok := i.names.get(nameKey(name))
	if !ok {
		return nil, false
	}
	return i.Topic(id)
}

// Topics are all topics, in no order.
func (i Image) Topics() iter.Seq[*Topic] { return values(i.topics) }

// Partition is a partition by its id.
func (i Image) Partition(id PartitionID) (*Partition, bool) { return i.partitions.get(id) }

// Partitions are all partitions of all topics, in no order.
func (i Image) Partitions() iter.Seq2[PartitionID, *Partition] { return i.partitions.all() }

// Config is what was set on a resource: of topics everything, of brokers only
// what replication depends on. What was not set is not in it.
func (i Image) Config(r Resource) map[string]string {
	set, _ := i.configs.get(r)
	return set
}

// Feature is the finalized level of a feature; 0 when it is not in use.
func (i Image) Feature(name string) int16 {
	level, _ := i.features.get(nameKey(name))
	return level
}

// Credential is a user's SCRAM credential, if the Reader keeps them.
func (i Image) Credential(id CredentialID) (Credential, bool) { return i.credentials.get(id) }

func values[K hashed, V any](t trie[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range t.all() {
			if !yield(v) {
				return
			}
		}
	}
}
