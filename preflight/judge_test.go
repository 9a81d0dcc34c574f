package preflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
)

// healthy are facts of which nothing is to be said: a topic to be created, one that is there.
func healthy() Facts {
	all := All
	side := func(id string, client *Client) Cluster {
		versions := map[int16]int16{produceKey: 11, fetchKey: 17, offsetsForLeader: 4, createTopicsKey: 7, incrementalConfigs: 1}
		return Cluster{ID: id, Inspection: &Inspection{
			Brokers: []Broker{{ID: 1, Address: id + ":9092", Versions: versions, Settings: map[string]string{"socket.request.max.bytes": "104857600"}}},
			Rights:  Rights{Cluster: &all, Topics: map[string]Operations{"new": All, "old": All}, Groups: map[string]Operations{}},
			Topics:  map[string]Described{"new": {}, "old": {Exists: true, Factor: 3}},
			Client:  client,
		}}
	}
	set := func() Settings {
		return Settings{Values: map[string]string{
			"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1", "max.message.bytes": "1048588", "min.insync.replicas": "2",
			"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": "9223372036854775807", "message.timestamp.after.max.ms": "9223372036854775807",
		}}
	}
	return Facts{
		Mirror: "dr", Source: side("A", nil), Destination: side("B", &Client{GapFill: "auto", MaxStartFill: 100}),
		Plan: Plan{Configs: true, Groups: true},
		Topics: []Topic{
			{Name: "new", Partitions: 1, Here: set(), There: set(), Factor: 3, Logs: make([]Log, 1)},
			{Name: "old", Partitions: 1, Here: set(), There: set(), Exists: true, TherePartitions: 1, Factor: 3, Logs: make([]Log, 1)},
		},
	}
}

func told(r *Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f))
	}
	return out
}

func TestJudgeFindsNothing(t *testing.T) {
	r := Judge(healthy())
	if got := told(r); len(got) > 0 || !r.Ready || r.Err() != nil {
		t.Errorf("%q, ready %v, %v", got, r.Ready, r.Err())
	}
}

func TestJudge(t *testing.T) {
	denied := fmt.Errorf("denied: %w", cluster.ErrAuthorization)
	tests := []struct {
		name   string
		change func(*Facts)
		want   []string
	}{
		{"the source is gone", func(f *Facts) {
			f.Source, f.Topics = Cluster{Err: errors.New("no route")}, nil
		}, []string{"blocks unreachable source: the cluster cannot be asked: no route"}},
		{"both are gone", func(f *Facts) {
			*f = Facts{Source: Cluster{Err: errors.New("dead")}, Destination: Cluster{Err: errors.New("dead too")}}
		}, []string{"blocks unreachable source: the cluster cannot be asked: dead", "blocks unreachable destination: the cluster cannot be asked: dead too"}},
		{"an address that is advertised", func(f *Facts) {
			f.Destination.Brokers = append(f.Destination.Brokers, Broker{ID: 2, Address: "inner:9092", Err: errors.New("no such host"), Cause: "dns"})
		}, []string{"blocks broker-unreachable destination, broker 2 at inner:9092: the advertised address cannot be used: no such host"}},
		{"an address of a broker that leads nothing", func(f *Facts) {
			f.Topics, f.Source.GroupsErr = f.Topics[1:], errors.New("groups of broker 2: no such host")
			for _, c := range []*Cluster{&f.Source, &f.Destination} {
				c.Brokers = append(c.Brokers, Broker{ID: 2, Address: "inner:9092", Err: errors.New("no such host"), Cause: "dns"})
			}
			f.Destination.Brokers[1].Leads = 3
		}, []string{
			"blocks broker-unreachable destination, broker 2 at inner:9092: the advertised address cannot be used: no such host",
			"warns broker-unreachable source, broker 2 at inner:9092: the advertised address cannot be used: no such host",
		}},
		{"one cluster", func(f *Facts) { f.Destination.ID = "A" },
			[]string{"blocks same-cluster both clusters: source and destination are one cluster, A"}},
		{"another cluster", func(f *Facts) { f.Source.Pinned, f.Destination.Pinned = "C", "B" },
			[]string{"blocks cluster-replaced source: cluster A answers, and the mirror has C on record"}},
		{"old clusters", func(f *Facts) {
			f.Source.Brokers[0].Versions = map[int16]int16{fetchKey: 10, offsetsForLeader: 2}
			f.Destination.Brokers[0].Versions = map[int16]int16{fetchKey: 10, produceKey: 7, createTopicsKey: 3}
		}, []string{
			"blocks version destination: the cluster cannot change single settings of a topic (before Kafka 2.3)",
			"blocks version destination: the cluster cannot create topics with its own replication factor (before Kafka 2.4)",
			"blocks version destination: the cluster knows no produce request of version 9 (before Kafka 2.6)",
			"warns version source: the cluster has no topic ids in fetches (before Kafka 3.1)",
			"warns version destination: the cluster is older than those that are tested (Kafka 3.9 and 4.4)",
		}},
		{"the oldest broker counts", func(f *Facts) {
			f.Source.Brokers = append(f.Source.Brokers, Broker{ID: 2, Versions: map[int16]int16{fetchKey: 3, offsetsForLeader: 4}})
		}, []string{"blocks version source: the cluster knows no fetch of record batches (before Kafka 0.11)"}},
		{"brokers that do not tell rights", func(f *Facts) { f.Source.Rights = Rights{} },
			[]string{"warns unchecked source: the brokers do not tell what a user may do"}},
		{"no right at the source", func(f *Facts) {
			f.Source.Rights.Topics = map[string]Operations{"new": Set(Describe), "old": Set(Describe, Read)}
		}, []string{
			"blocks permission source, topics new, old: DescribeConfigs is missing on the topic", "blocks permission source, topic new: Read is missing on the topic",
		}},
		{"no right at the destination", func(f *Facts) {
			none := Set(Describe)
			f.Destination.Rights = Rights{Cluster: &none, Topics: map[string]Operations{"new": Set(Describe), "old": Set(Describe)}, Groups: map[string]Operations{"g": 0, "h": Set(Read)}}
			f.Source.Groups = []string{"g", "h"}
			f.Topics[0].Created = denied
			f.Topics[1].Due, f.Topics[1].DueLasting, f.Topics[1].Altered = []string{"retention.ms"}, true, denied
			f.Topics[1].Partitions, f.Topics[1].TherePartitions = 2, 1
			f.Topics[0].Logs[0].Here = cluster.Offsets{LogStart: 5, HighWatermark: 9}
		}, []string{
			"blocks permission destination, topic old: Alter is missing on the topic",
			"blocks permission destination, topic old: AlterConfigs is missing on the topic",
			"blocks permission destination, topic new: Create is missing on the topic",
			"blocks permission destination, topic new: Delete is missing on the topic",
			"blocks permission destination, topics new, old: DescribeConfigs is missing on the topic",
			"blocks permission destination, topics new, old: Read is missing on the topic",
			"blocks permission destination, topics new, old: Write is missing on the topic",
			"loses permission destination, topic new: AlterConfigs is missing on the topic",
			"loses permission destination, group g: Read is missing on the group",
			"warns permission destination: Alter is missing on the cluster",
			"warns permission destination, topic new: Alter is missing on the topic",
			"warns permission destination, topic old: Delete is missing on the topic",
		}},
		{"not described", func(f *Facts) {
			f.Destination.Topics["new"] = Described{Err: denied}
			f.Missing, f.Source.Topics["hidden"] = []string{"hidden", "typo"}, Described{Err: denied}
		}, []string{
			"blocks permission source, topic hidden: Describe is missing on the topic", "blocks permission destination, topic new: Describe is missing on the topic",
			"warns topic-missing source, topic typo: named, and not there",
		}},
		{"rights for access rules", func(f *Facts) {
			none := Set(ClusterAction)
			f.Plan.ACLs, f.Plan.Groups, f.Source.Rights.Cluster, f.Destination.Rights.Cluster = true, false, &none, &none
		}, []string{
			"loses permission source: Describe is missing on the cluster", "loses permission destination: Alter is missing on the cluster",
			"loses permission destination: Describe is missing on the cluster",
		}},
		{"rights for the guard", func(f *Facts) {
			none := Set(ClusterAction)
			f.Plan.Guard, f.Plan.Groups, f.Destination.Rights.Cluster = true, false, &none
		}, []string{"loses permission destination: Alter is missing on the cluster", "loses permission destination: Describe is missing on the cluster"}},
		{"state cannot be kept", func(f *Facts) {
			none := Set(Describe)
			f.Plan.StateTopic, f.Plan.PeerTopic = "state", "peer"
			f.Destination.Rights.Topics["state"], f.Destination.Rights.Cluster, f.Source.Rights.Topics["peer"] = Set(Describe, Read), &none, 0
			f.Plan.Groups, f.Destination.Client.GapFill = false, "phantoms"
		}, []string{
			"blocks permission source, topic peer: Read is missing on the topic", "blocks permission destination, topic state: Create is missing on the topic",
			"blocks permission destination, topic state: DescribeConfigs is missing on the topic", "blocks permission destination, topic state: Write is missing on the topic",
		}},
		{"compacted, and markers are not permitted", func(f *Facts) {
			none := Set(Describe, Create)
			f.Destination.Rights.Cluster = &none
			f.Topics[1].Here.Values["cleanup.policy"], f.Topics[1].There.Values["cleanup.policy"] = "compact", "compact"
		}, []string{"blocks gap-fill destination, topic old: it is compacted, and Alter is missing on the cluster"}},
		{"compacted, and nothing fills", func(f *Facts) {
			f.Destination.Client.GapFill = "fail"
			f.Topics[1].Here.Values["cleanup.policy"], f.Topics[1].There.Values["cleanup.policy"] = "compact,delete", "delete,compact"
		}, []string{"blocks gap-fill source, topic old: it is compacted, and offsets without records are not to be filled"}},
		{"more partitions there", func(f *Facts) { f.Topics[1].TherePartitions = 3 },
			[]string{"blocks partitions destination, topic old: it has 3 partitions, and 1 at the source"}},
		{"refused by a policy", func(f *Facts) {
			f.Topics[0].Created = fmt.Errorf("%w: POLICY_VIOLATION", cluster.ErrRefused)
			f.Topics[1].Altered, f.Topics[1].Due = errors.New("no"), []string{"segment.ms"}
		}, []string{
			"blocks create-refused destination, topic new: the destination would refuse to create it: refused by the cluster: POLICY_VIOLATION",
			"loses settings-refused destination, topic old: the destination would refuse a change of segment.ms: no",
		}},
		{"a setting that is not known", func(f *Facts) { f.Topics[0].Created = cluster.ErrInvalidConfig },
			[]string{"loses create-refused destination, topic new: the destination would refuse to create it: " + cluster.ErrInvalidConfig.Error()}},
		{"records of somebody else", func(f *Facts) {
			f.Topics[1].Logs[0] = Log{Here: cluster.Offsets{HighWatermark: 9}, There: cluster.Offsets{HighWatermark: 5}}
		}, []string{"warns not-empty destination, topic old: it is not empty, and this mirror has nothing of it on record"}},
		{"records that the source does not have", func(f *Facts) {
			f.Topics[1].Logs[0] = Log{Here: cluster.Offsets{HighWatermark: 9}, There: cluster.Offsets{HighWatermark: 10}}
		}, []string{"blocks not-empty destination, topic old: its log ends behind the source's, and this mirror has nothing of it on record"}},
		{"records of ours", func(f *Facts) {
			f.Topics[1].Logs[0] = Log{Here: cluster.Offsets{HighWatermark: 9}, There: cluster.Offsets{HighWatermark: 10}, Ours: true}
		}, []string{}},
		{"the way back", func(f *Facts) {
			f.Topics[0].Logs[0] = Log{Here: cluster.Offsets{HighWatermark: 9}, There: cluster.Offsets{HighWatermark: 10}, Ours: true, Back: true, Common: 7}
			f.Topics[1].Logs[0] = Log{Here: cluster.Offsets{HighWatermark: 9}, There: cluster.Offsets{HighWatermark: 7}, Ours: true, Back: true, Common: 7}
		}, []string{"blocks tail destination, topic new: 3 offsets there never reached the source"}},
		{"the way back, where tails are cut", func(f *Facts) {
			f.Plan.Cuts = true
			f.Topics[1].Logs[0] = Log{Here: cluster.Offsets{HighWatermark: 9}, There: cluster.Offsets{LogStart: 9, HighWatermark: 10}, Ours: true, Back: true, Common: 7}
		}, []string{"loses tail destination, topic old: 1 offset there never reached the source"}},
		{"starts too far away", func(f *Facts) {
			f.Topics[0].Logs[0].Here = cluster.Offsets{LogStart: 101, HighWatermark: 200}
		}, []string{"blocks start-far source, topic new: partition 0 starts at offset 101: as many have to be filled at the destination, and the limit is 100"}},
		{"starts later, and cannot be deleted", func(f *Facts) {
			f.Topics[0].Logs[0].Here = cluster.Offsets{LogStart: 50, HighWatermark: 200}
			f.Topics[0].Here.Values["cleanup.policy"], f.Topics[0].There.Values["cleanup.policy"] = "compact", "compact"
		}, []string{"blocks start-compacted destination, topic new: its cleanup.policy has no delete, and the source's log starts above 0"}},
		{"the other way", func(f *Facts) { f.Topics[1].Peer = cluster.ErrLoop },
			[]string{"blocks other-mirror destination, topic old: " + cluster.ErrLoop.Error()}},
		{"nobody tells of the other way", func(f *Facts) { f.PeerErr, f.RecordErr = errors.New("no"), errors.New("neither") }, []string{
			"blocks peer-unknown source: where mirrors the other way stopped cannot be read: no",
			"warns unchecked destination: what this mirror has done before is not known: neither",
		}},
		{"too few replicas", func(f *Facts) { f.Topics[0].Factor = 1 },
			[]string{"blocks min-insync destination, topic new: min.insync.replicas is 2, and it has 1 replica"}},
		{"nobody leads", func(f *Facts) { f.Source.Topics["old"] = Described{Exists: true, Leaderless: []int32{0}} },
			[]string{"blocks no-leader source, topic old: nobody leads 1 partition of it"}},
		{"limits that are lower", func(f *Facts) {
			for i := range f.Topics {
				f.Topics[i].There.Values["max.message.bytes"], f.Topics[i].There.Values["retention.ms"] = "1000", "1000"
				f.Topics[i].There.Values["retention.bytes"], f.Topics[i].Here.Values["retention.ms"] = "5", "60000"
			}
			f.Topics[1].Due = []string{"max.message.bytes", "retention.ms", "retention.bytes"}
			f.Destination.Brokers[0].Settings["socket.request.max.bytes"] = "1000000"
		}, []string{
			"loses retention destination, topic new: retention.bytes is 5, and unlimited at the source",
			"loses retention destination, topic new: retention.ms is 1000, and 60000 at the source",
			"warns retention-short source, topics new, old: records are kept for 1m0s only",
			"warns size destination, topic new: batches of up to 1000 bytes are taken, and up to 1048588 at the source",
			"warns size destination, topics new, old: the brokers take requests of up to 1000000 bytes, and the source's topic batches of up to 1048588",
		}},
		{"another policy", func(f *Facts) { f.Topics[0].There.Values["cleanup.policy"] = "delete,compact" },
			[]string{"loses retention destination, topic new: cleanup.policy is delete,compact, and delete at the source"}},
		{"times that are not taken", func(f *Facts) {
			v := f.Topics[1].There.Values
			v["message.timestamp.type"], v["message.timestamp.after.max.ms"] = "LogAppendTime", "3600000"
		}, []string{
			"blocks timestamps destination, topic old: the brokers put their own time into records (LogAppendTime)",
			"warns timestamps destination, topic old: records whose time is farther than 3600000 ms from now are refused (message.timestamp.after.max.ms)",
		}},
		{"settings that are not shown", func(f *Facts) { f.Topics[0].Here = Settings{Err: errors.New("timeout")} },
			[]string{"blocks settings-unknown source, topic new: its settings are not shown: timeout"}},
		{"joining", func(f *Facts) {
			f.Plan.Join, f.Destination.Client, f.Plan.JoinErrs = true, nil, []error{errors.New("no controllers"), errors.New("no id")}
			f.Topics[1].There.Values["remote.storage.enable"] = "true"
		}, []string{
			"blocks join destination: no controllers", "blocks join destination: no id",
			"blocks remote-storage destination, topic old: its older records are in remote storage",
		}},
		{"ends that are not told", func(f *Facts) { f.Topics[1].Logs[0].HereErr = errors.New("no answer") },
			[]string{"warns unchecked source, topic old: the ends of its log could not be read"}},
		{"groups that are not all known", func(f *Facts) { f.Source.GroupsErr = errors.New("broker 2: no answer") },
			[]string{"warns unchecked source: not all groups are known: broker 2: no answer"}},
		{"nothing matches", func(f *Facts) { f.Topics = nil }, []string{"warns no-topics source: no topic that this user sees matches"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy()
			tt.change(&f)
			r := Judge(f)
			if diff := cmp.Diff(tt.want, told(r)); diff != "" {
				t.Error(diff)
			}
			blocks := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Blocks })
			if r.Ready == blocks || (r.Err() != nil) != blocks {
				t.Errorf("ready %v, %v", r.Ready, r.Err())
			}
			for _, f := range r.Findings {
				if f.Why == "" || f.Do == "" {
					t.Errorf("%v: says neither why nor what to do", f)
				}
			}
		})
	}
}

// TestManyTopics: what is the same of ten thousand topics is one finding, which names them all.
func TestManyTopics(t *testing.T) {
	f := healthy()
	f.Topics = nil
	for i := range 10_000 {
		name := fmt.Sprintf("t%05d", i)
		f.Source.Rights.Topics[name], f.Destination.Rights.Topics[name] = Set(Describe, DescribeConfigs), All
		f.Topics = append(f.Topics, Topic{Name: name, Partitions: 1})
	}
	r := Judge(f)
	if len(r.Findings) != 1 || len(r.Findings[0].Topics) != 10_000 {
		t.Fatalf("%d findings, the first of %d topics", len(r.Findings), len(r.Findings[0].Topics))
	}
	var text strings.Builder
	if _, err := r.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	if want := "topics t00000, t00001, t00002, t00003, t00004 and 9995 more"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in:\n%s", want, text.String())
	}
}

// TestReportText is what a person reads.
func TestReportText(t *testing.T) {
	f := healthy()
	f.Source.Rights.Topics["old"] = Set(Describe, DescribeConfigs)
	f.Topics[0].There.Values["retention.ms"] = "1000"
	var text strings.Builder
	if _, err := Judge(f).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	want := `mirror       dr, 2 topics
source       A
destination  B

BLOCKS  source, topic old
        Read is missing on the topic
        why: its records cannot be fetched
        do:  kafka-acls.sh --add --allow-principal User:USER --operation Read --topic NAME

LOSES   destination, topic new
        retention.ms is 1000, and 604800000 at the source
        why: records are gone earlier than at the source
        do:  set it at the source's topic: explicit settings are copied

not ready: 1 block, 1 lose, 0 warn
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}

// TestReportLines: errors of several lines stay in their place, and nothing of them moves the cursor.
func TestReportLines(t *testing.T) {
	f := healthy()
	f.Topics, f.Source = nil, Cluster{Err: errors.New("one\ntwo\x1b[2J")}
	var text strings.Builder
	if _, err := Judge(f).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	if want := "        the cluster cannot be asked: one\n        two\uFFFD[2J\n"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
}

// TestReportJSON is the stable form: a change here breaks programs that read it.
func TestReportJSON(t *testing.T) {
	f := healthy()
	f.Source.Rights.Topics["old"] = Set(Describe, DescribeConfigs)
	f.Topics = f.Topics[1:]
	got, err := json.Marshal(Judge(f))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"mirror":"dr","ready":false,"source":"A","destination":"B","topics":1,"counts":{"blocks":1,"loses":0,"warns":0},` +
		`"findings":[{"severity":"blocks","code":"permission","cluster":"source","topics":["old"],"permission":{"resource":"topic","operation":"Read"},` +
		`"what":"Read is missing on the topic","why":"its records cannot be fetched","do":"kafka-acls.sh --add --allow-principal User:USER --operation Read --topic NAME"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}
