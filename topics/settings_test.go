package topics

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// configsOf reads settings from "name=value name=value".
func configsOf(text string) (out []cluster.TopicConfig) {
	for f := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(f, "=")
		out = append(out, cluster.TopicConfig{Name: name, Value: value})
	}
	return out
}

func mapOf(text string) map[string]string {
	if text == "" {
		return nil
	}
	return values(configsOf(text))
}

// never are settings that are never copied (C6.1, C6.5).
var never = []string{
	"leader.replication.throttled.replicas", "follower.replication.throttled.replicas", "min.insync.replicas",
	"unclean.leader.election.enable", "message.format.version", "message.timestamp.difference.max.ms", "remote.storage.enable",
	"local.retention.ms", "confluent.x", "redpanda.remote.read", "errors.deadletterqueue.x", "message.timestamp.before.max.ms",
	"message.timestamp.after.max.ms",
}

// TestMirrorConfigs: what belongs to one cluster, or to a vendor, is not copied; what the
// destination requires is there whatever the source says, whose value is kept for later.
func TestMirrorConfigs(t *testing.T) {
	source := configsOf("retention.ms=1 cleanup.policy=compact max.message.bytes=2 compression.type=zstd message.timestamp.type=LogAppendTime compression.zstd.level=3")
	for _, n := range never {
		source = append(source, cluster.TopicConfig{Name: n, Value: "never"})
	}
	const long = "9223372036854775807"
	for _, tc := range []struct {
		name       string
		required   []cluster.TopicConfig
		want, then string
	}{
		{
			"validated", Validated(), "cleanup.policy=compact compression.type=producer compression.zstd.level=3 max.message.bytes=2 message.timestamp.after.max.ms=" + long +
				" message.timestamp.before.max.ms=" + long + " message.timestamp.type=CreateTime retention.ms=1",
			"compression.type=zstd message.timestamp.type=LogAppendTime",
		},
		{
			"as replicas take it", nil,
			"cleanup.policy=compact compression.type=zstd compression.zstd.level=3 max.message.bytes=2 message.timestamp.type=LogAppendTime retention.ms=1", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, own := MirrorConfigs(source, tc.required)
			if diff := cmp.Diff(configsOf(tc.want), got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(Own{Set: mapOf(tc.want), Then: mapOf(tc.then)}, own); diff != "" {
				t.Error(diff)
			}
		})
	}
}
