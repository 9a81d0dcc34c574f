package topics

import (
	"slices"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// neverCopied are settings that belong to one cluster: throttles name its
// brokers, availability is its operator's choice, timestamp limits would refuse
// what the source has accepted (semantics, metadata sync).
var neverCopied = map[string]bool{
	"leader.replication.throttled.replicas":   true,
	"follower.replication.throttled.replicas": true,
	"min.insync.replicas":                     true,
	"unclean.leader.election.enable":          true,
	"message.format.version":                  true,
	"message.timestamp.difference.max.ms":     true,
	"message.timestamp.before.max.ms":         true,
	"message.timestamp.after.max.ms":          true,
}

// foreignPrefixes are settings of other vendors and of tiered storage.
var foreignPrefixes = []string{"remote.", "local.retention.", "confluent.", "redpanda.", "errors."}

// copied reports whether a setting of the source is one of the mirror topic too.
func copied(name string) bool {
	return !neverCopied[name] && !slices.ContainsFunc(foreignPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// lasting are the settings that decide how long records live and how large they may be.
var lasting = map[string]bool{
	"cleanup.policy": true, "retention.ms": true, "retention.bytes": true, "max.message.bytes": true, "delete.retention.ms": true,
	"max.compaction.lag.ms": true, "min.compaction.lag.ms": true,
}

// Lasting reports whether a setting decides how long records live, or how large they may
// be: it has to be in step before the first record comes.
func Lasting(name string) bool { return lasting[name] }

// Validated are the settings that a destination needs which takes batches as a broker
// takes them from its clients: not re-compressed, with the producer's timestamps, however
// old or far in the future those are.
func Validated() []cluster.TopicConfig {
	return []cluster.TopicConfig{
		{Name: "compression.type", Value: "producer"},
		{Name: "message.timestamp.after.max.ms", Value: "9223372036854775807"},
		{Name: "message.timestamp.before.max.ms", Value: "9223372036854775807"},
		{Name: "message.timestamp.type", Value: "CreateTime"},
	}
}

// MirrorConfigs are the settings a mirror topic is created with, sorted by name: the
// source topic's own, without those that belong to one cluster, and what the destination
// requires. Own says that they are the mirror's doing.
func MirrorConfigs(source, required []cluster.TopicConfig) ([]cluster.TopicConfig, Own) {
	own := Own{Set: map[string]string{}}
	needed := values(required)
	for name, value := range needed {
		own.Set[name] = value
	}
	for _, c := range source {
		_, overridden := needed[c.Name]
		switch {
		case !copied(c.Name):
		case overridden:
			own.Then = with(own.Then, c.Name, c.Value)
		default:
			own.Set[c.Name] = c.Value
		}
	}
	out := make([]cluster.TopicConfig, 0, len(own.Set))
	for name, value := range own.Set {
		out = append(out, cluster.TopicConfig{Name: name, Value: value})
	}
	slices.SortFunc(out, func(a, b cluster.TopicConfig) int { return strings.Compare(a.Name, b.Name) })
	return out, own
}

func values(cs []cluster.TopicConfig) map[string]string {
	out := make(map[string]string, len(cs))
	for _, c := range cs {
		out[c.Name] = c.Value
	}
	return out
}

func with(m map[string]string, name, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[name] = value
	return m
}
