package metalog

import (
	"log/slog"

	"github.com/clustermirror/mirror/cluster"
)

// Record is one record of the metadata log, as Decode gives it. The names are
// those of Kafka's schemas (metadata/src/main/resources/common/metadata).
type Record interface{ record() }

type (
	// RegisterBroker is RegisterBrokerRecord: a broker as it is from now on.
	RegisterBroker struct{ Broker Broker }

	// UnregisterBroker is UnregisterBrokerRecord.
	UnregisterBroker struct {
		ID    int32
		Epoch int64
	}

	// ChangeBroker is BrokerRegistrationChangeRecord, and FenceBrokerRecord and
	// UnfenceBrokerRecord, which only change Fenced. Nil means no change.
	ChangeBroker struct {
		ID                           int32
		Epoch                        int64
		Fenced, InControlledShutdown *bool
		Directories, Cordoned        []UUID
	}

	// NewTopic is TopicRecord.
	NewTopic struct {
		Name string
		ID   cluster.TopicID
	}

	// NewPartition is PartitionRecord: a partition as it is from now on.
	NewPartition struct {
		ID        PartitionID
		Partition Partition
	}

	// ChangePartition is PartitionChangeRecord. Nil means no change. Each one adds
	// 1 to the partition epoch, and one with a leader adds 1 to the leader epoch.
	ChangePartition struct {
		ID                              PartitionID
		Replicas, ISR, Removing, Adding []int32
		ELR, LastKnownELR               []int32
		Directories                     []UUID
		Leader                          *int32
		Recovering                      *bool
	}

	// RemoveTopic is RemoveTopicRecord: the topic and all its partitions.
	RemoveTopic struct{ ID cluster.TopicID }

	// ClearELR is ClearElrRecord: of one topic, or of all when Topic is empty.
	ClearELR struct{ Topic string }

	// SetConfig is ConfigRecord. A nil Value takes the key away.
	SetConfig struct {
		Resource Resource
		Key      string
		Value    *string
	}

	// SetFeature is FeatureLevelRecord.
	SetFeature struct {
		Name  string
		Level int16
	}

	// ProducerIDs is ProducerIdsRecord: the first producer id not handed out yet.
	ProducerIDs struct{ Next int64 }

	// SetCredential is UserScramCredentialRecord.
	SetCredential struct {
		ID         CredentialID
		Credential Credential
	}

	// RemoveCredential is RemoveUserScramCredentialRecord.
	RemoveCredential struct{ ID CredentialID }

	// BeginTransaction, EndTransaction and AbortTransaction enclose records that
	// count together or not at all (KIP-868).
	BeginTransaction struct{}
	// EndTransaction makes them count.
	EndTransaction struct{}
	// AbortTransaction makes them not have been.
	AbortTransaction struct{}
)

func (RegisterBroker) record()   {}
func (UnregisterBroker) record() {}
func (ChangeBroker) record()     {}
func (NewTopic) record()         {}
func (NewPartition) record()     {}
func (ChangePartition) record()  {}
func (RemoveTopic) record()      {}
func (ClearELR) record()         {}
func (SetConfig) record()        {}
func (SetFeature) record()       {}
func (ProducerIDs) record()      {}
func (SetCredential) record()    {}
func (RemoveCredential) record() {}
func (BeginTransaction) record() {}
func (EndTransaction) record()   {}
func (AbortTransaction) record() {}

// Mechanism is a SCRAM mechanism in the numbers of KIP-554.
type Mechanism int8

// The mechanisms of Kafka.
const (
	ScramSHA256 Mechanism = 1
	ScramSHA512 Mechanism = 2
)

// CredentialID names a user's credential.
type CredentialID struct {
	User      string
	Mechanism Mechanism
}

// Credential is what a SCRAM server needs to know of a user: enough to pose as
// a server to him, and to guess his password. It prints as a placeholder; do
// not store it.
type Credential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

const hidden = "(hidden)"

// String hides the keys, as do GoString, LogValue and MarshalText.
func (Credential) String() string { return hidden }

// GoString is String.
func (Credential) GoString() string { return hidden }

// LogValue is String.
func (Credential) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText is String.
func (Credential) MarshalText() ([]byte, error) { return []byte(hidden), nil }
