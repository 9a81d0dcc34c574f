package preflight

import (
	"context"
	"strings"
)

// Inspector is the optional ability of a source or destination to tell how it would
// receive a mirror. It asks only: nothing is changed. Safe for concurrent use.
type Inspector interface {
	// Inspect asks about topics and groups by name, those that are not there too. Requests
	// are many names long, so that their number is bounded. What cannot be learnt is left
	// out, or has its own error; the error is for what concerns all of it.
	Inspect(ctx context.Context, topics, groups []string) (*Inspection, error)
}

// Inspection is what an Inspector tells.
type Inspection struct {
	Brokers []Broker
	Rights  Rights
	// Topics are those asked for that could be described, by name.
	Topics map[string]Described
	Client *Client // nil: it is not written to as clients write
}

// Broker is one of those that the cluster tells its clients to connect to.
type Broker struct {
	ID      int32
	Address string
	Err     error // it cannot be reached, or refuses who we are
	Cause   string
	Leads   int // partitions of the topics asked for
	// Versions are the newest of each request, by its key; nil when it was not reached.
	Versions map[int16]int16
	// Settings are its own; nil when they are not shown.
	Settings map[string]string
}

// Client is what a destination that is written to by produce requests is told to do.
type Client struct {
	GapFill      string // auto, markers, phantoms or fail
	MaxStartFill int64
	Rebuild      bool
}

// Described is one topic as the cluster shows it.
type Described struct {
	Err        error
	Exists     bool
	Factor     int     // of the partition with the fewest replicas
	Leaderless []int32 // partitions
}

// Rights are what the user may do; nil maps where brokers do not tell (before Kafka 2.3).
type Rights struct {
	Cluster *Operations
	Topics  map[string]Operations
	Groups  map[string]Operations
}

// Operations is a set of ACL operations, a bit for each by Kafka's number.
type Operations int32

// Operation is an ACL operation by Kafka's number (AclOperation).
type Operation uint8

// The operations that a mirror needs.
const (
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
)

var operationNames = map[Operation]string{
	Read: "Read", Write: "Write", Create: "Create", Delete: "Delete", Alter: "Alter", Describe: "Describe",
	ClusterAction: "ClusterAction", DescribeConfigs: "DescribeConfigs", AlterConfigs: "AlterConfigs",
}

// String is the name that kafka-acls.sh takes.
func (o Operation) String() string { return operationNames[o] }

// Has reports whether an operation is in the set.
func (o Operations) Has(op Operation) bool { return o&(1<<op) != 0 }

// Set is the set of some operations.
func Set(ops ...Operation) (all Operations) {
	for _, op := range ops {
		all |= 1 << op
	}
	return all
}

// All is every operation.
const All Operations = 1<<31 - 1

// least is the oldest version of a request among the brokers that were reached, -1 where one
// of them does not know it.
func (i *Inspection) least(key int16) (version int16, known bool) {
	for _, b := range i.Brokers {
		if b.Versions == nil {
			continue
		}
		v, ok := b.Versions[key]
		if !ok {
			v = -1
		}
		if !known || v < version {
			version = v
		}
		known = true
	}
	return version, known
}

// listed joins names that are a few.
func listed(names []string) string { return strings.Join(names, ", ") }
