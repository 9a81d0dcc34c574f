package preflight

import "fmt"

// The requests that versions are looked at of, by Kafka's keys.
const (
	produceKey         = 0
	fetchKey           = 1
	offsetsForLeader   = 23
	createTopicsKey    = 19
	incrementalConfigs = 44
	writeTxnMarkers    = 27
)

// A demand is what a side must know, and what is so without.
type demand struct {
	side     Side
	key      int16
	version  int16
	severity Severity
	what     string // what the cluster is too old for
	why, do  string
	when     func(*judge) bool
}

func clientWrites(j *judge) bool {
	return j.Destination.Inspection != nil && j.Destination.Client != nil
}

const upgrade = "upgrade its brokers"

var demands = []demand{
	{Source, fetchKey, 4, Blocks, "knows no fetch of record batches (before Kafka 0.11)", "records cannot be copied as they are", upgrade, nil},
	{Source, offsetsForLeader, 2, Warns, "does not tell where leader epochs end to clients (before Kafka 2.1)", "records that an unclean election took away are not noticed", upgrade, nil},
	{Source, fetchKey, 13, Warns, "has no topic ids in fetches (before Kafka 3.1)",
		"a topic that is deleted and made anew is told by its records only, see docs/divergence.md", "do not delete and make anew topics that are mirrored", nil},
	{Destination, produceKey, 9, Blocks, "knows no produce request of version 9 (before Kafka 2.6)", "nothing can be appended", upgrade, clientWrites},
	{Destination, createTopicsKey, 4, Blocks, "cannot create topics with its own replication factor (before Kafka 2.4)", "topics that are missing are not created", upgrade, nil},
	{Destination, incrementalConfigs, 0, Blocks, "cannot change single settings of a topic (before Kafka 2.3)", "settings are not in step, and nothing is copied before they are", upgrade,
		func(j *judge) bool { return j.Plan.Configs }},
	{Destination, fetchKey, 17, Warns, "is older than those that are tested (Kafka 3.9 and 4.4)", "it may behave otherwise than was seen", "try a failover and a failback with it before you rely on it", nil},
}

// versions: each demand once for a cluster, the first of a request that it does not meet.
func (j *judge) versions() {
	told := map[string]bool{}
	for _, d := range demands {
		c := j.side(d.side)
		if c.Inspection == nil || d.when != nil && !d.when(j) {
			continue
		}
		has, known := c.least(d.key)
		id := fmt.Sprint(d.side, d.key)
		if !known || has >= d.version || told[id] {
			continue
		}
		told[id] = true
		j.add(Finding{Severity: d.severity, Code: "version", Cluster: d.side, What: "the cluster " + d.what, Why: d.why, Do: d.do})
	}
}
