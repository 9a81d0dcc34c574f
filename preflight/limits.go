package preflight

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

var errUnset = errors.New("not known")

func number(s Settings, name string) (int64, error) {
	text, ok := s.Values[name]
	if !ok {
		return 0, errUnset
	}
	return strconv.ParseInt(text, 10, 64)
}

// both gives a number of both sides; false when one of them is not known.
func (t *Topic) both(name string) (here, there int64, ok bool) {
	here, e1 := number(t.Here, name)
	there, e2 := number(t.There, name)
	return here, there, e1 == nil && e2 == nil
}

func hasPolicy(policy, one string) bool {
	for p := range strings.SplitSeq(policy, ",") {
		if strings.TrimSpace(p) == one {
			return true
		}
	}
	return false
}

func (s Settings) compacted() bool { return hasPolicy(s.Values["cleanup.policy"], "compact") }

// settings: what decides how large records may be, how long they live, and what fills holes.
func (j *judge) settings(t *Topic) {
	j.settingsKnown(t)
	j.sizes(t)
	j.retention(t)
	j.timestamps(t)
	if c := j.Destination.Inspection; c != nil && c.Client != nil && c.Client.GapFill == "fail" && t.Here.compacted() {
		j.add(Finding{Severity: Blocks, Code: "gap-fill", Cluster: Source, Topics: []string{t.Name}, Setting: "cleanup.policy",
			What: "it is compacted, and offsets without records are not to be filled", Why: "the first such offset stops the partition",
			Do: "choose what fills them (--gap-fill, docs/gaps.md), or leave the topic out"})
	}
	if j.Plan.Join && t.Exists && t.There.Values["remote.storage.enable"] == "true" {
		j.add(Finding{Severity: Blocks, Code: "remote-storage", Cluster: Destination, Topics: []string{t.Name}, Setting: "remote.storage.enable",
			What: "its older records are in remote storage", Why: "a joined destination does not take over such a topic", Do: "switch it off for the topic, or mirror without joining"})
	}
}

func (j *judge) settingsKnown(t *Topic) {
	for _, s := range []struct {
		side Side
		of   Settings
	}{{Source, t.Here}, {Destination, t.There}} {
		// A missing right is named with the rights.
		if s.of.Err != nil && !j.named(s.side, t.Name, DescribeConfigs) {
			j.add(Finding{Severity: Blocks, Code: "settings-unknown", Cluster: s.side, Topics: []string{t.Name},
				What: fmt.Sprintf("its settings are not shown: %v", s.of.Err), Why: "without them a topic is not created, and nothing is copied into one",
				Do: "allow DescribeConfigs on it"})
		}
	}
}

// named: that the right is missing is said already.
func (j *judge) named(side Side, topic string, op Operation) bool {
	c := j.side(side)
	if c.Inspection == nil || c.Topics[topic].Err != nil {
		return c.Inspection != nil
	}
	ops, told := c.Rights.Topics[topic]
	return told && !ops.Has(op)
}

func (j *judge) sizes(t *Topic) {
	const name = "max.message.bytes"
	here, there, ok := t.both(name)
	if ok && there < here && !t.due(name) {
		j.add(Finding{Severity: Warns, Code: "size", Cluster: Destination, Topics: []string{t.Name}, Setting: name,
			What: fmt.Sprintf("batches of up to %d bytes are taken, and up to %d at the source", there, here),
			Why:  "the first larger one stops its partition", Do: "set max.message.bytes of the source's topic, which is copied, or raise message.max.bytes of the destination's brokers"})
	}
	if here == 0 || j.Destination.Inspection == nil || j.Destination.Client == nil {
		return
	}
	for _, b := range j.Destination.Brokers {
		limit, err := strconv.ParseInt(b.Settings["socket.request.max.bytes"], 10, 64)
		if err == nil && limit < here {
			j.add(Finding{Severity: Warns, Code: "size", Cluster: Destination, Topics: []string{t.Name}, Setting: "socket.request.max.bytes",
				What: fmt.Sprintf("the brokers take requests of up to %d bytes, and the source's topic batches of up to %d", limit, here),
				Why:  "a batch that does not fit into a request stops its partition", Do: "raise socket.request.max.bytes at the destination"})
			return
		}
	}
}

// due: a setting is going to be changed before the first record comes.
func (t *Topic) due(name string) bool {
	for _, d := range t.Due {
		if d == name && t.Altered == nil {
			return true
		}
	}
	return false
}

// briefly is how short a source's retention is one that a copy hardly keeps ahead of.
const briefly = 10 * time.Minute

// retention: records that are gone earlier at the destination, or at the source before
// they are copied.
func (j *judge) retention(t *Topic) {
	here, there := t.Here.Values["cleanup.policy"], t.There.Values["cleanup.policy"]
	if here != "" && there != "" && !t.due("cleanup.policy") && !samePolicy(here, there) {
		j.add(Finding{Severity: Loses, Code: "retention", Cluster: Destination, Topics: []string{t.Name}, Setting: "cleanup.policy",
			What: fmt.Sprintf("cleanup.policy is %s, and %s at the source", there, here), Why: "records are removed by other rules than at the source", Do: "set it at the source's topic: explicit settings are copied"})
	}
	for _, name := range []string{"retention.ms", "retention.bytes"} {
		a, b, ok := t.both(name)
		if !ok || !hasPolicy(there, "delete") || t.due(name) || b < 0 || a >= 0 && b >= a {
			continue
		}
		j.add(Finding{Severity: Loses, Code: "retention", Cluster: Destination, Topics: []string{t.Name}, Setting: name,
			What: fmt.Sprintf("%s is %d, and %s at the source", name, b, unlimited(a)), Why: "records are gone earlier than at the source", Do: "set it at the source's topic: explicit settings are copied"})
	}
	if ms, err := number(t.Here, "retention.ms"); err == nil && ms >= 0 && hasPolicy(here, "delete") && time.Duration(ms)*time.Millisecond < briefly {
		j.add(Finding{Severity: Warns, Code: "retention-short", Cluster: Source, Topics: []string{t.Name}, Setting: "retention.ms",
			What: fmt.Sprintf("records are kept for %v only", time.Duration(ms)*time.Millisecond),
			Why:  "what is not copied within that time is gone: it is skipped and reported, or the partition fails (--retention-gap)", Do: "raise it until the first copy is through"})
	}
}

// timestamps: a destination that takes batches as clients send them looks at their times, and
// may put its own in their place. A topic that the mirror creates, or whose settings it keeps
// in step, is told not to.
func (j *judge) timestamps(t *Topic) {
	if !t.Exists || j.Destination.Inspection == nil || j.Destination.Client == nil {
		return
	}
	const kind = "message.timestamp.type"
	if t.There.Values[kind] == "LogAppendTime" && !t.due(kind) {
		j.add(Finding{Severity: Blocks, Code: "timestamps", Cluster: Destination, Topics: []string{t.Name}, Setting: kind,
			What: "the brokers put their own time into records (LogAppendTime)", Why: "records would not have the source's timestamps, and are not appended",
			Do: "set message.timestamp.type to CreateTime there, or let the mirror keep settings in step"})
	}
	for _, name := range []string{"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"} {
		if ms, err := number(t.There, name); err == nil && ms < math.MaxInt64 && !t.due(name) {
			j.add(Finding{Severity: Warns, Code: "timestamps", Cluster: Destination, Topics: []string{t.Name}, Setting: name,
				What: fmt.Sprintf("records whose time is farther than %d ms from now are refused (%s)", ms, name), Why: "the first such record stops its partition",
				Do: "raise it there to 9223372036854775807, or let the mirror keep settings in step"})
		}
	}
}

func unlimited(n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}

func samePolicy(a, b string) bool {
	return hasPolicy(a, "compact") == hasPolicy(b, "compact") && hasPolicy(a, "delete") == hasPolicy(b, "delete")
}

// brokers: settings of them that could not be seen, and a record that does not tell.
func (j *judge) brokers() {
	if j.RecordErr != nil {
		j.unchecked(Destination, "what this mirror has done before is not known", j.RecordErr)
	}
	if j.PeerErr != nil {
		j.add(Finding{Severity: Blocks, Code: "peer-unknown", Cluster: Source, What: fmt.Sprintf("where mirrors the other way stopped cannot be read: %v", j.PeerErr),
			Why: "nothing is mirrored before it is known: two mirrors could feed each other", Do: "make the topic of that state readable, or give no place of it where there is none"})
	}
	// Of a broker that cannot be reached it is said already.
	if j.Plan.Groups && j.Source.GroupsErr != nil && j.Source.Err == nil && !j.Source.incomplete() {
		j.unchecked(Source, "not all groups are known", j.Source.GroupsErr)
	}
	for _, s := range []Side{Source, Destination} {
		for i := range j.Topics {
			for _, l := range j.Topics[i].Logs {
				err := l.HereErr
				if s == Destination {
					err = l.ThereErr
				}
				if err != nil && j.side(s).Err == nil {
					j.unreadable(s, j.Topics[i].Name)
					break
				}
			}
		}
	}
}

// incomplete: a broker of the cluster cannot be reached.
func (c *Cluster) incomplete() bool {
	return c.Inspection != nil && slices.ContainsFunc(c.Brokers, func(b Broker) bool { return b.Err != nil })
}

func (j *judge) unreadable(s Side, topic string) {
	if c := j.side(s); c.Inspection != nil && (c.Topics[topic].Err != nil || len(c.Topics[topic].Leaderless) > 0) {
		return // said already
	}
	j.add(Finding{Severity: Warns, Code: "unchecked", Cluster: s, Topics: []string{topic}, What: "the ends of its log could not be read",
		Why: "it may hide what goes wrong later", Do: "make its leaders reachable and check again"})
}
