package preflight

import (
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// conflicts: the topic can come to be at the destination, and nobody else's is in its way.
func (j *judge) conflicts(t *Topic) {
	at := func(s Severity, code, what, why, do string) {
		j.add(Finding{Severity: s, Code: code, Cluster: Destination, Topics: []string{t.Name}, What: what, Why: why, Do: do})
	}
	if t.Exists && t.TherePartitions > t.Partitions {
		at(Blocks, "partitions", fmt.Sprintf("it has %d partitions, and %d at the source", t.TherePartitions, t.Partitions),
			"partitions cannot be taken away, so it is refused", "delete it, or give the source's as many")
	}
	if !t.Exists && t.Created != nil && !errors.Is(t.Created, cluster.ErrAuthorization) {
		severity, why := Blocks, "the topic cannot be created"
		if errors.Is(t.Created, cluster.ErrInvalidConfig) {
			severity, why = Loses, "it is created without the source's settings, and each is set for itself after that; which are refused shows in the status"
		}
		at(severity, "create-refused", fmt.Sprintf("the destination would refuse to create it: %v", t.Created), why, "look at the settings, and at the destination's policy and replication factor")
	}
	if t.Exists && t.Altered != nil && !errors.Is(t.Altered, cluster.ErrAuthorization) {
		severity := Loses
		if t.DueLasting {
			severity = Blocks
		}
		at(severity, "settings-refused", fmt.Sprintf("the destination would refuse a change of %s: %v", listed(t.Due), t.Altered),
			"its settings are not those of the source's topic", "look at the destination's policy, and at the source's settings")
	}
	if t.Peer != nil {
		at(Blocks, "other-mirror", t.Peer.Error(), "two mirrors would feed each other", "stop the topic in the other mirror first")
	}
}

// logs: what stands in the destination's log, and how far away the source's begins.
func (j *judge) logs(t *Topic) {
	foreign, beyond, tail := 0, 0, int64(0)
	for p, l := range t.Logs {
		if l.HereErr != nil || l.ThereErr != nil {
			continue
		}
		if l.There.HighWatermark > l.There.LogStart && !l.Ours {
			foreign++
			if l.There.HighWatermark > l.Here.HighWatermark {
				beyond++
			}
		}
		if l.Back {
			tail += max(0, l.There.HighWatermark-max(l.Common, l.There.LogStart))
		}
		j.far(t, p, l)
	}
	if tail > 0 {
		j.tail(t, tail)
	}
	switch {
	case beyond > 0:
		j.add(Finding{Severity: Blocks, Code: "not-empty", Cluster: Destination, Topics: []string{t.Name},
			What: "its log ends behind the source's, and this mirror has nothing of it on record",
			Why:  "it holds records that the source does not have; such a partition fails and nothing is overwritten",
			Do:   "mirror to another cluster, delete the topic, or allow to cut it (--scratch with --truncation)"})
	case foreign > 0:
		j.add(Finding{Severity: Warns, Code: "not-empty", Cluster: Destination, Topics: []string{t.Name},
			What: "it is not empty, and this mirror has nothing of it on record",
			Why:  "its records are compared with the source's at the start; where they are not the same the partition fails and nothing is overwritten",
			Do:   "nothing if an earlier copy made it, else delete it"})
	}
}

// tail: what a mirror the other way has not taken has to go before this one can bring
// anything back.
func (j *judge) tail(t *Topic, n int64) {
	f := Finding{Severity: Loses, Code: "tail", Cluster: Destination, Topics: []string{t.Name},
		What: fmt.Sprintf("%s there never reached the source", counted(int(n), "offset")),
		Why:  "they are cut before the rest is brought back, and saved before that where salvage is on", Do: "nothing, or take them out first"}
	if !j.Plan.Cuts {
		f.Severity, f.Why, f.Do = Blocks, "they have to go before the rest can be brought back, and this destination cannot cut", "allow it (--truncation rebuild or join)"
	}
	j.add(f)
}

// far: an empty log is filled up to where the source's starts, within limits.
func (j *judge) far(t *Topic, p int, l Log) {
	if j.Destination.Inspection == nil || j.Destination.Client == nil || l.There.HighWatermark > l.There.LogStart {
		return
	}
	n := l.Here.LogStart - l.There.HighWatermark
	limit := j.Destination.Client.MaxStartFill
	switch policy := t.There.Values["cleanup.policy"]; {
	case n <= 0:
	case n > limit:
		j.add(Finding{Severity: Blocks, Code: "start-far", Cluster: Source, Topics: []string{t.Name},
			What: fmt.Sprintf("partition %d starts at offset %d: as many have to be filled at the destination, and the limit is %d", p, l.Here.LogStart, limit),
			Why:  "the destination's log has to start where the source's does", Do: "raise the limit (--max-start-fill)"})
	case policy != "" && !hasPolicy(policy, "delete"):
		j.add(Finding{Severity: Blocks, Code: "start-compacted", Cluster: Destination, Topics: []string{t.Name}, Setting: "cleanup.policy",
			What: "its cleanup.policy has no delete, and the source's log starts above 0",
			Why:  "what fills the log up to there cannot be deleted again", Do: "give it compact,delete at the source while the copy begins"})
	}
}

// replicas: as many as are needed to append at all, and somebody who leads.
func (j *judge) replicas(t *Topic) {
	for _, s := range []Side{Source, Destination} {
		c := j.side(s)
		if c.Inspection == nil {
			continue
		}
		if led := c.Topics[t.Name]; len(led.Leaderless) > 0 {
			j.add(Finding{Severity: Blocks, Code: "no-leader", Cluster: s, Topics: []string{t.Name}, What: fmt.Sprintf("nobody leads %s of it", counted(len(led.Leaderless), "partition")),
				Why: "they stand still until somebody does", Do: "bring back the brokers that hold them"})
		}
	}
	least, err := number(t.There, "min.insync.replicas")
	if err != nil || j.Plan.Join || t.Factor == 0 || least <= int64(t.Factor) {
		return
	}
	j.add(Finding{Severity: Blocks, Code: "min-insync", Cluster: Destination, Topics: []string{t.Name}, Setting: "min.insync.replicas",
		What: fmt.Sprintf("min.insync.replicas is %d, and it has %s", least, counted(t.Factor, "replica")),
		Why:  "nothing can be appended with acks=all", Do: "lower the setting, or raise default.replication.factor before the topic is created"})
}
