package wire

import (
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// Code is an error code of the Kafka protocol as an error. It matches, with
// errors.Is, the sentinel of package cluster that stands for it.
type Code int16

// CodeError is nil for code 0 (NONE) and Code(code) for every other.
func CodeError(code int16) error {
	if code == 0 {
		return nil
	}
	return Code(code)
}

// Name is Kafka's own name for the code (org.apache.kafka.common.protocol.Errors),
// or UNKNOWN for a code this table does not have.
func (c Code) Name() string {
	if r := c.row(); r != nil {
		return r.name
	}
	return "UNKNOWN"
}

// Error gives name and number, for example "NOT_LEADER_OR_FOLLOWER (6)".
func (c Code) Error() string { return fmt.Sprintf("%s (%d)", c.Name(), int16(c)) }

// Unwrap gives the sentinel. A code newer than the table is ErrRefused, as an
// answer whose meaning is not known must not be repeated for ever in haste.
func (c Code) Unwrap() error {
	if r := c.row(); r != nil {
		return r.is
	}
	return cluster.ErrRefused
}

// Retriable reports what Kafka's Java client says: the exception of this code is
// a RetriableException. cluster.Retriable is the wider question (would an
// operator's change help).
func (c Code) Retriable() bool {
	r := c.row()
	return r != nil && r.retriable
}

func (c Code) row() *codeRow {
	i := int(c) + 1 // the table starts at -1
	if i < 0 || i >= len(codes) {
		return nil
	}
	return &codes[i]
}

type codeRow struct {
	name      string
	is        error // nil only for NONE
	retriable bool
}

// Short names keep the table below readable as a table.
var (
	refused     = cluster.ErrRefused
	unavailable = cluster.ErrUnavailable
	authn       = cluster.ErrAuthentication
	authz       = cluster.ErrAuthorization
	unsupported = errors.ErrUnsupported
)

// codes holds every code of Kafka 4.4 in order, from -1 on; it is read-only.
var codes = [...]codeRow{
	{"UNKNOWN_SERVER_ERROR", refused, false},                        // -1
	{"NONE", nil, false},                                            // 0
	{"OFFSET_OUT_OF_RANGE", cluster.ErrOutOfRange, false},           // 1
	{"CORRUPT_MESSAGE", cluster.ErrCorrupt, true},                   // 2
	{"UNKNOWN_TOPIC_OR_PARTITION", cluster.ErrUnknownTopic, true},   // 3
	{"INVALID_FETCH_SIZE", refused, false},                          // 4
	{"LEADER_NOT_AVAILABLE", unavailable, true},                     // 5
	{"NOT_LEADER_OR_FOLLOWER", cluster.ErrNotLeader, true},          // 6
	{"REQUEST_TIMED_OUT", cluster.ErrTimeout, true},                 // 7
	{"BROKER_NOT_AVAILABLE", unavailable, false},                    // 8
	{"REPLICA_NOT_AVAILABLE", unavailable, true},                    // 9
	{"MESSAGE_TOO_LARGE", cluster.ErrTooLarge, false},               // 10
	{"STALE_CONTROLLER_EPOCH", unavailable, false},                  // 11
	{"OFFSET_METADATA_TOO_LARGE", refused, false},                   // 12
	{"NETWORK_EXCEPTION", unavailable, true},                        // 13
	{"COORDINATOR_LOAD_IN_PROGRESS", unavailable, true},             // 14
	{"COORDINATOR_NOT_AVAILABLE", unavailable, true},                // 15
	{"NOT_COORDINATOR", unavailable, true},                          // 16
	{"INVALID_TOPIC_EXCEPTION", refused, false},                     // 17
	{"RECORD_LIST_TOO_LARGE", cluster.ErrTooLarge, false},           // 18
	{"NOT_ENOUGH_REPLICAS", unavailable, true},                      // 19
	{"NOT_ENOUGH_REPLICAS_AFTER_APPEND", unavailable, true},         // 20
	{"INVALID_REQUIRED_ACKS", refused, false},                       // 21
	{"ILLEGAL_GENERATION", refused, false},                          // 22
	{"INCONSISTENT_GROUP_PROTOCOL", refused, false},                 // 23
	{"INVALID_GROUP_ID", refused, false},                            // 24
	{"UNKNOWN_MEMBER_ID", refused, false},                           // 25
	{"INVALID_SESSION_TIMEOUT", refused, false},                     // 26
	{"REBALANCE_IN_PROGRESS", unavailable, false},                   // 27
	{"INVALID_COMMIT_OFFSET_SIZE", refused, false},                  // 28
	{"TOPIC_AUTHORIZATION_FAILED", authz, false},                    // 29
	{"GROUP_AUTHORIZATION_FAILED", authz, false},                    // 30
	{"CLUSTER_AUTHORIZATION_FAILED", authz, false},                  // 31
	{"INVALID_TIMESTAMP", refused, false},                           // 32
	{"UNSUPPORTED_SASL_MECHANISM", authn, false},                    // 33
	{"ILLEGAL_SASL_STATE", authn, false},                            // 34
	{"UNSUPPORTED_VERSION", unsupported, false},                     // 35
	{"TOPIC_ALREADY_EXISTS", cluster.ErrTopicExists, false},         // 36
	{"INVALID_PARTITIONS", refused, false},                          // 37
	{"INVALID_REPLICATION_FACTOR", refused, false},                  // 38
	{"INVALID_REPLICA_ASSIGNMENT", refused, false},                  // 39
	{"INVALID_CONFIG", cluster.ErrInvalidConfig, false},             // 40
	{"NOT_CONTROLLER", unavailable, true},                           // 41
	{"INVALID_REQUEST", refused, false},                             // 42
	{"UNSUPPORTED_FOR_MESSAGE_FORMAT", refused, false},              // 43
	{"POLICY_VIOLATION", refused, false},                            // 44
	{"OUT_OF_ORDER_SEQUENCE_NUMBER", cluster.ErrOutOfOrder, false},  // 45
	{"DUPLICATE_SEQUENCE_NUMBER", cluster.ErrOutOfOrder, false},     // 46
	{"INVALID_PRODUCER_EPOCH", cluster.ErrFenced, false},            // 47
	{"INVALID_TXN_STATE", refused, false},                           // 48
	{"INVALID_PRODUCER_ID_MAPPING", refused, false},                 // 49
	{"INVALID_TRANSACTION_TIMEOUT", refused, false},                 // 50
	{"CONCURRENT_TRANSACTIONS", unavailable, true},                  // 51
	{"TRANSACTION_COORDINATOR_FENCED", cluster.ErrFenced, false},    // 52
	{"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", authz, false},         // 53
	{"SECURITY_DISABLED", cluster.ErrNoAuthorizer, false},           // 54
	{"OPERATION_NOT_ATTEMPTED", refused, false},                     // 55
	{"KAFKA_STORAGE_ERROR", unavailable, true},                      // 56
	{"LOG_DIR_NOT_FOUND", refused, false},                           // 57
	{"SASL_AUTHENTICATION_FAILED", authn, false},                    // 58
	{"UNKNOWN_PRODUCER_ID", cluster.ErrOutOfOrder, false},           // 59
	{"REASSIGNMENT_IN_PROGRESS", unavailable, false},                // 60
	{"DELEGATION_TOKEN_AUTH_DISABLED", refused, false},              // 61
	{"DELEGATION_TOKEN_NOT_FOUND", refused, false},                  // 62
	{"DELEGATION_TOKEN_OWNER_MISMATCH", refused, false},             // 63
	{"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", refused, false},        // 64
	{"DELEGATION_TOKEN_AUTHORIZATION_FAILED", authz, false},         // 65
	{"DELEGATION_TOKEN_EXPIRED", refused, false},                    // 66
	{"INVALID_PRINCIPAL_TYPE", refused, false},                      // 67
	{"NON_EMPTY_GROUP", refused, false},                             // 68
	{"GROUP_ID_NOT_FOUND", refused, false},                          // 69
	{"FETCH_SESSION_ID_NOT_FOUND", unavailable, true},               // 70
	{"INVALID_FETCH_SESSION_EPOCH", unavailable, true},              // 71
	{"LISTENER_NOT_FOUND", unavailable, true},                       // 72
	{"TOPIC_DELETION_DISABLED", refused, false},                     // 73
	{"FENCED_LEADER_EPOCH", cluster.ErrLeaderEpoch, true},           // 74
	{"UNKNOWN_LEADER_EPOCH", cluster.ErrLeaderEpoch, true},          // 75
	{"UNSUPPORTED_COMPRESSION_TYPE", cluster.ErrCompression, false}, // 76
	{"STALE_BROKER_EPOCH", unavailable, false},                      // 77
	{"OFFSET_NOT_AVAILABLE", unavailable, true},                     // 78
	{"MEMBER_ID_REQUIRED", refused, false},                          // 79
	{"PREFERRED_LEADER_NOT_AVAILABLE", unavailable, true},           // 80
	{"GROUP_MAX_SIZE_REACHED", refused, false},                      // 81
	{"FENCED_INSTANCE_ID", refused, false},                          // 82
	{"ELIGIBLE_LEADERS_NOT_AVAILABLE", unavailable, true},           // 83
	{"ELECTION_NOT_NEEDED", refused, true},                          // 84
	{"NO_REASSIGNMENT_IN_PROGRESS", refused, false},                 // 85
	{"GROUP_SUBSCRIBED_TO_TOPIC", refused, false},                   // 86
	{"INVALID_RECORD", refused, false},                              // 87
	{"UNSTABLE_OFFSET_COMMIT", unavailable, true},                   // 88
	{"THROTTLING_QUOTA_EXCEEDED", unavailable, true},                // 89
	{"PRODUCER_FENCED", cluster.ErrFenced, false},                   // 90
	{"RESOURCE_NOT_FOUND", refused, false},                          // 91
	{"DUPLICATE_RESOURCE", refused, false},                          // 92
	{"UNACCEPTABLE_CREDENTIAL", refused, false},                     // 93
	{"INCONSISTENT_VOTER_SET", refused, false},                      // 94
	{"INVALID_UPDATE_VERSION", unavailable, false},                  // 95
	{"FEATURE_UPDATE_FAILED", refused, false},                       // 96
	{"PRINCIPAL_DESERIALIZATION_FAILURE", refused, false},           // 97
	{"SNAPSHOT_NOT_FOUND", refused, false},                          // 98
	{"POSITION_OUT_OF_RANGE", refused, false},                       // 99
	{"UNKNOWN_TOPIC_ID", cluster.ErrUnknownTopic, true},             // 100
	{"DUPLICATE_BROKER_REGISTRATION", unavailable, false},           // 101
	{"BROKER_ID_NOT_REGISTERED", unavailable, false},                // 102
	{"INCONSISTENT_TOPIC_ID", cluster.ErrTopicReplaced, true},       // 103
	{"INCONSISTENT_CLUSTER_ID", cluster.ErrClusterReplaced, false},  // 104
	{"TRANSACTIONAL_ID_NOT_FOUND", refused, false},                  // 105
	{"FETCH_SESSION_TOPIC_ID_ERROR", unavailable, true},             // 106
	{"INELIGIBLE_REPLICA", unavailable, false},                      // 107
	{"NEW_LEADER_ELECTED", unavailable, false},                      // 108
	{"OFFSET_MOVED_TO_TIERED_STORAGE", refused, false},              // 109
	{"FENCED_MEMBER_EPOCH", refused, false},                         // 110
	{"UNRELEASED_INSTANCE_ID", refused, false},                      // 111
	{"UNSUPPORTED_ASSIGNOR", refused, false},                        // 112
	{"STALE_MEMBER_EPOCH", refused, false},                          // 113
	{"MISMATCHED_ENDPOINT_TYPE", refused, false},                    // 114
	{"UNSUPPORTED_ENDPOINT_TYPE", refused, false},                   // 115
	{"UNKNOWN_CONTROLLER_ID", refused, false},                       // 116
	{"UNKNOWN_SUBSCRIPTION_ID", refused, false},                     // 117
	{"TELEMETRY_TOO_LARGE", refused, false},                         // 118
	{"INVALID_REGISTRATION", refused, false},                        // 119
	{"TRANSACTION_ABORTABLE", refused, false},                       // 120
	{"INVALID_RECORD_STATE", refused, false},                        // 121
	{"SHARE_SESSION_NOT_FOUND", unavailable, true},                  // 122
	{"INVALID_SHARE_SESSION_EPOCH", unavailable, true},              // 123
	{"FENCED_STATE_EPOCH", refused, false},                          // 124
	{"INVALID_VOTER_KEY", refused, false},                           // 125
	{"DUPLICATE_VOTER", refused, false},                             // 126
	{"VOTER_NOT_FOUND", refused, false},                             // 127
	{"INVALID_REGULAR_EXPRESSION", refused, false},                  // 128
	{"REBOOTSTRAP_REQUIRED", unavailable, false},                    // 129
	{"STREAMS_INVALID_TOPOLOGY", refused, false},                    // 130
	{"STREAMS_INVALID_TOPOLOGY_EPOCH", refused, false},              // 131
	{"STREAMS_TOPOLOGY_FENCED", refused, false},                     // 132
	{"SHARE_SESSION_LIMIT_REACHED", unavailable, true},              // 133
	{"GROUP_DELETION_FAILED", refused, false},                       // 134
	{"STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", refused, false},  // 135
	{"CONTROLLER_ID_NOT_REGISTERED", unavailable, false},            // 136
}
