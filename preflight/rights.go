package preflight

import (
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// resource is what a permission is on, as kafka-acls.sh names it.
const (
	onCluster = "cluster"
	onTopic   = "topic"
	onGroup   = "group"
)

// lack adds that a permission is missing on a topic, a group, or the cluster.
func (j *judge) lack(s Severity, side Side, resource, name string, op Operation, why string) {
	f := Finding{Severity: s, Code: "permission", Cluster: side, Permission: &Permission{resource, op.String()},
		What: fmt.Sprintf("%v is missing on the %s", op, resource), Why: why}
	target := "--cluster"
	switch resource {
	case onTopic:
		f.Topics, target = []string{name}, "--topic NAME"
	case onGroup:
		f.Groups, target = []string{name}, "--group NAME"
	}
	f.Do = fmt.Sprintf("kafka-acls.sh --add --allow-principal User:USER --operation %v %s", op, target)
	j.add(f)
}

// rights: every permission that the plan needs, one by one.
func (j *judge) rights() {
	for _, s := range []Side{Source, Destination} {
		c := j.side(s)
		if c.Inspection == nil {
			continue
		}
		if c.Rights.Topics == nil {
			j.add(Finding{Severity: Warns, Code: "unchecked", Cluster: s, What: "the brokers do not tell what a user may do",
				Why: "permissions that are missing are found when they are needed", Do: "compare the user's rules with the list in docs/preflight.md"})
			continue
		}
		for i := range j.Topics {
			if s == Source {
				j.rightsAtSource(&j.Topics[i])
			} else {
				j.rightsAtDestination(&j.Topics[i])
			}
		}
	}
	j.stateRights()
	j.groupRights()
	j.clusterRights()
}

// on is a topic's rights; false when they are not told. A topic that may not be described
// is told as such.
func (j *judge) on(side Side, name, why string) (Operations, bool) {
	c := j.side(side)
	if errors.Is(c.Topics[name].Err, cluster.ErrAuthorization) {
		j.lack(Blocks, side, onTopic, name, Describe, why)
		return 0, false
	}
	ops, told := c.Rights.Topics[name]
	return ops, told
}

func (j *judge) rightsAtSource(t *Topic) {
	ops, told := j.on(Source, t.Name, "the topic is not seen")
	if !told {
		return
	}
	if !ops.Has(Read) {
		j.lack(Blocks, Source, onTopic, t.Name, Read, "its records cannot be fetched")
	}
	if !ops.Has(DescribeConfigs) {
		j.lack(Blocks, Source, onTopic, t.Name, DescribeConfigs, "its settings are not known: without them a topic is not created, and could delete old records on arrival")
	}
}

func (j *judge) rightsAtDestination(t *Topic) {
	d := &j.Destination
	ops, told := j.on(Destination, t.Name, "whether it is there, and what it holds, cannot be told")
	if !t.Exists && (errors.Is(t.Created, cluster.ErrAuthorization) || told && t.Created == nil && !ops.Has(Create) && !may(d.Rights.Cluster, Create)) {
		j.lack(Blocks, Destination, onTopic, t.Name, Create, "the topic is not there yet and cannot be created (Create on the cluster will do too)")
	}
	if !told {
		return
	}
	client := d.Client != nil
	lack := func(s Severity, op Operation, why string) {
		if !ops.Has(op) {
			j.lack(s, Destination, onTopic, t.Name, op, why)
		}
	}
	if client {
		lack(Blocks, Write, "nothing can be appended")
	}
	lack(Blocks, Read, "its log is compared with the source's before anything is appended")
	if j.Plan.Configs {
		lack(Blocks, DescribeConfigs, "nothing is copied before its settings are compared with the source's")
		severity, why := Loses, "changes of the source's settings are not brought over"
		if t.DueLasting || j.Plan.Join {
			severity, why = Blocks, "settings have to be changed before the first record is copied"
		}
		lack(severity, AlterConfigs, why)
	}
	if t.Exists && t.TherePartitions < t.Partitions {
		lack(Blocks, Alter, "it has fewer partitions than the source's, and cannot be given more")
	} else {
		lack(Warns, Alter, "partitions that the source gets later cannot be created")
	}
	switch {
	case !client:
	case t.startsLater():
		lack(Blocks, Delete, "what fills the log below the source's log start cannot be deleted")
	default:
		lack(Warns, Delete, "records that the source deletes (retention) stay until the destination's own retention takes them")
	}
}

// startsLater: an empty log has to be filled up to where the source's starts.
func (t *Topic) startsLater() bool {
	for _, l := range t.Logs {
		if l.HereErr == nil && l.ThereErr == nil && l.Here.LogStart > l.There.HighWatermark {
			return true
		}
	}
	return false
}

func may(ops *Operations, op Operation) bool { return ops == nil || ops.Has(op) }

// stateRights: the topics that hold state.
func (j *judge) stateRights() {
	check := func(side Side, name string, needs map[Operation]string, createToo bool) {
		c := j.side(side)
		if name == "" || c.Inspection == nil || c.Rights.Topics == nil {
			return
		}
		ops, told := j.on(side, name, "the mirrors' state is kept there")
		if !told {
			return
		}
		if createToo && !c.Topics[name].Exists && !ops.Has(Create) && !may(c.Rights.Cluster, Create) {
			j.lack(Blocks, side, onTopic, name, Create, "the mirrors' state is kept there, and it is not there yet")
		}
		for _, op := range []Operation{Read, Write, DescribeConfigs} {
			if why := needs[op]; why != "" && !ops.Has(op) {
				j.lack(Blocks, side, onTopic, name, op, why)
			}
		}
	}
	check(Destination, j.Plan.StateTopic, map[Operation]string{
		Read: "the mirror's state cannot be read", Write: "the mirror's state cannot be stored", DescribeConfigs: "whether state is safe there (cleanup.policy) cannot be told",
	}, true)
	check(Source, j.Plan.PeerTopic, map[Operation]string{Read: "where mirrors the other way stopped cannot be read, and until then nothing is mirrored"}, false)
}

func (j *judge) groupRights() {
	if !j.Plan.Groups || j.Destination.Inspection == nil {
		return
	}
	for _, g := range j.Source.Groups {
		if ops, told := j.Destination.Rights.Groups[g]; told && !ops.Has(Read) {
			j.lack(Loses, Destination, onGroup, g, Read, "its committed offsets are not brought over")
		}
	}
}

func (j *judge) clusterRights() {
	lack := func(s Severity, side Side, op Operation, why string) {
		if c := j.side(side); c.Inspection != nil && c.Rights.Cluster != nil && !c.Rights.Cluster.Has(op) {
			j.lack(s, side, onCluster, "", op, why)
		}
	}
	if j.Plan.Groups {
		lack(Warns, Source, Describe, "groups that the user may not describe one by one are not seen, and not brought over")
		lack(Warns, Destination, Describe, "whether a group has members there is not seen of those that the user may not describe one by one")
	}
	if j.Plan.ACLs {
		lack(Loses, Source, Describe, "access rules cannot be read, and are not brought over")
		lack(Loses, Destination, Describe, "access rules cannot be compared, and are not brought over")
		lack(Loses, Destination, Alter, "access rules cannot be created")
	}
	if j.Plan.Guard {
		for _, op := range []Operation{Describe, Alter} {
			lack(Loses, Destination, op, "others are not kept from writing to mirror topics: access rules are read and made for it")
		}
	}
	j.markerRights()
}

// markerRights: transaction markers fill holes where that is permitted.
func (j *judge) markerRights() {
	d := &j.Destination
	if d.Inspection == nil || d.Client == nil || d.Rights.Cluster == nil || d.Client.GapFill != "auto" && d.Client.GapFill != "markers" {
		return
	}
	if ops := *d.Rights.Cluster; ops.Has(Alter) || ops.Has(ClusterAction) {
		return
	}
	const why = "offsets without records (compaction, transactions) are filled with markers, which it permits; a partition with such offsets stops. --gap-fill phantoms needs no permission, see docs/gaps.md"
	compacted := false
	for i := range j.Topics {
		if t := &j.Topics[i]; t.Here.compacted() {
			compacted = true
			j.add(Finding{Severity: Blocks, Code: "gap-fill", Cluster: Destination, Topics: []string{t.Name}, Setting: "cleanup.policy",
				Permission: &Permission{onCluster, Alter.String()}, What: "it is compacted, and Alter is missing on the cluster",
				Why: why, Do: "kafka-acls.sh --add --allow-principal User:USER --operation Alter --cluster"})
		}
	}
	if !compacted {
		j.lack(Warns, Destination, onCluster, "", Alter, why)
	}
}
