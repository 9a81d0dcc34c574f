// Package kafka keeps the state of mirrors in a compacted topic of a Kafka cluster,
// by default __cluster_mirror_state at the destination: what a mirror needs to go on
// lies beside what it copied, and nothing else has to be run.
//
// # Records of the topic
//
// Keys are text, values JSON with a version "v". A name of a mirror or topic is written
// as in a URL's path (net/url.PathEscape), which leaves legal names as they are.
//
//	record/<mirror>/<topic>/<partition>/<turn>/<token>   a coordinator.Record
//	definition/<mirror>/<turn>/<token>                   a coordinator.Definition
//	intent/<mirror>/<topic>                              a coordinator.Intent without its revision
//	note/<mirror>/<key>/<turn>/<token>                   a note of coordinator.Notes
//
// All that stands of a mirror "a-to-b" can be read with
//
//	kcat -C -e -t __cluster_mirror_state -f '%k %s\n' | grep '^[a-z]*/a-to-b/'
//
// An intent's last value counts; its revision is its offset plus one. Records,
// definitions and notes are written under keys that are never used twice: the turn grows by one
// with every value, the token is the writer's and new for each try. Of the values that
// are not deleted (null), the one with the highest turn counts, and of several with that
// turn the first in the log. {"v":1,"deleted":true} is a value, too: the record was
// deleted. What does not count is deleted by whoever comes by, and then removed by
// compaction. Why this is enough for compare-and-save between processes that know
// nothing of each other is the subject of docs/decisions/0007.
//
// Keys that this version does not know are left alone.
//
// # Partitions
//
// A record stands in the partition that PartitionOf gives, a definition, all intents and
// all notes of a mirror in the one of MirrorPartitionOf. The number of partitions must not be
// changed once there is state: reading then fails, naming a key in the wrong place.
//
// # The topic
//
// It is created with cleanup.policy=compact, min.insync.replicas one below the
// replication factor, message.timestamp.type=LogAppendTime and min.compaction.lag.ms=60000.
// One that exists is taken as it is, unless its cleanup.policy is something else.
// Permissions needed: Topic Describe, Read and Write, DescribeConfigs (or a warning is
// logged), and Create where it is missing.
package kafka
