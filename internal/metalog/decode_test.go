package metalog_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/metalog/metalogtest"
	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func uuid(n byte) metalog.UUID       { return metalog.UUID{0: n, 15: 0xff} }
func topicID(n byte) cluster.TopicID { return cluster.TopicID(uuid(n)) }

func samples() map[string]metalog.Record {
	id := metalog.PartitionID{Topic: topicID(1), Partition: 7}
	return map[string]metalog.Record{
		"register": metalog.RegisterBroker{Broker: metalog.Broker{
			ID: 100, Epoch: 1 << 40, Incarnation: uuid(9), Rack: "r1", Fenced: true, InControlledShutdown: true,
			Listeners:   []metalog.Listener{{Name: "INTERNAL", Host: "h", Port: 65535, Protocol: 3}, {Name: "X", Host: "", Port: 1}},
			Features:    []metalog.Feature{{Name: "metadata.version", Min: 7, Max: 30}, {Name: "x", Max: 1}},
			Directories: []metalog.UUID{uuid(3)}, Cordoned: []metalog.UUID{uuid(3), uuid(4)},
		}},
		"unregister":   metalog.UnregisterBroker{ID: 3, Epoch: 9},
		"fence":        metalog.ChangeBroker{ID: 3, Epoch: 9, Fenced: ptr(true)},
		"unfence":      metalog.ChangeBroker{ID: 3, Epoch: 9, Fenced: ptr(false), InControlledShutdown: ptr(true)},
		"cordon":       metalog.ChangeBroker{ID: 3, Epoch: 9, Directories: []metalog.UUID{uuid(1)}, Cordoned: []metalog.UUID{}},
		"topic":        metalog.NewTopic{Name: "ein thema", ID: topicID(1)},
		"remove topic": metalog.RemoveTopic{ID: topicID(1)},
		"partition": metalog.NewPartition{ID: id, Partition: metalog.Partition{
			Replicas: []int32{100, 1, 2}, ISR: []int32{1}, Removing: []int32{}, Adding: []int32{2}, ELR: []int32{3}, LastKnownELR: []int32{4, 5},
			Directories: []metalog.UUID{uuid(1), uuid(2), uuid(3)}, Leader: -1, LeaderEpoch: 5, PartitionEpoch: 6, Recovering: true,
		}},
		"leader": metalog.ChangePartition{ID: id, Leader: ptr(int32(-1)), ISR: []int32{}},
		"everything": metalog.ChangePartition{ID: id, Leader: ptr(int32(4)), ISR: []int32{4}, Replicas: []int32{4, 5}, Removing: []int32{5},
			Adding: []int32{}, ELR: []int32{6}, LastKnownELR: []int32{7}, Directories: []metalog.UUID{uuid(1)}, Recovering: ptr(false)},
		"config":            metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.TopicResource, Name: "t"}, Key: "k", Value: ptr("")},
		"config gone":       metalog.SetConfig{Resource: metalog.Resource{Kind: metalog.BrokerResource}, Key: "k"},
		"feature":           metalog.SetFeature{Name: "metadata.version", Level: 27},
		"producer ids":      metalog.ProducerIDs{Next: 46000},
		"credential":        metalog.SetCredential{ID: metalog.CredentialID{User: "u", Mechanism: 2}, Credential: secret},
		"remove credential": metalog.RemoveCredential{ID: metalog.CredentialID{User: "u", Mechanism: 1}},
		"begin":             metalog.BeginTransaction{}, "end": metalog.EndTransaction{}, "abort": metalog.AbortTransaction{},
		"clear elr": metalog.ClearELR{Topic: "t"},
	}
}

var secret = metalog.Credential{Salt: []byte("sal" + "t"), StoredKey: []byte("store" + "d"), ServerKey: []byte("serve" + "r"), Iterations: 4096}

func TestDecode(t *testing.T) {
	for name, want := range samples() {
		t.Run(name, func(t *testing.T) {
			value := metalogtest.Value(want)
			got, err := metalog.Decode(value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			for n := range value {
				if _, err := metalog.Decode(value[:n]); !errors.Is(err, cluster.ErrCorrupt) {
					t.Errorf("%d bytes of %d: %v", n, len(value), err)
				}
			}
			if _, err := metalog.Decode(append(value, 0)); !errors.Is(err, cluster.ErrCorrupt) {
				t.Errorf("a byte too many: %v", err)
			}
		})
	}
}

// TestDecodeOld reads records as Kafka's own tools wrote them in older versions.
func TestDecodeOld(t *testing.T) {
	id := strings.Repeat("00", 15) + "07"
	tests := []struct {
		name, hex string
		want      metalog.Record
	}{
		// frame, kind, version, fields in the order of the schema, no tagged fields
		{"RegisterBroker v0", "010000" + "00000002" + id + "0000000000000005" + "02" + "0241" + "0268" + "2384" + "0000" + "00" +
			"02" + "0266" + "0001" + "0002" + "00" + "00" + "01" + "00",
			metalog.RegisterBroker{Broker: metalog.Broker{ID: 2, Epoch: 5, Incarnation: metalog.UUID{15: 7}, Fenced: true,
				Listeners: []metalog.Listener{{Name: "A", Host: "h", Port: 9092}}, Features: []metalog.Feature{{Name: "f", Min: 1, Max: 2}}}}},
		{"Partition v0", "010300" + "00000001" + id + "0200000001" + "0200000001" + "01" + "01" + "00000001" + "00000003" + "00000004" + "00",
			metalog.NewPartition{ID: metalog.PartitionID{Topic: cluster.TopicID{15: 7}, Partition: 1}, Partition: metalog.Partition{
				Replicas: []int32{1}, ISR: []int32{1}, Removing: []int32{}, Adding: []int32{}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: 4}}},
		{"FenceBroker", "010700" + "00000003" + "0000000000000009" + "00", metalog.ChangeBroker{ID: 3, Epoch: 9, Fenced: ptr(true)}},
		{"UnfenceBroker", "010800" + "00000003" + "0000000000000009" + "00", metalog.ChangeBroker{ID: 3, Epoch: 9, Fenced: ptr(false)}},
		{"a tag of the future", "010200" + "0274" + id + "01" + "6302" + "abcd", metalog.NewTopic{Name: "t", ID: cluster.TopicID{15: 7}}},
		{"an unknown kind", "017f00" + "ffffff", nil},
		{"NoOp", hex.EncodeToString(metalogtest.NoOp()), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			value, err := hex.DecodeString(tt.hex)
			if err != nil {
				t.Fatal(err)
			}
			got, err := metalog.Decode(value)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
	var version *metalog.VersionError
	if _, err := metalog.Decode([]byte{1, 0, 5, 0}); !errors.As(err, &version) || version.Version != 5 {
		t.Errorf("a version of the future: %v", err)
	}
	if _, err := metalog.Decode([]byte{0, 2, 0}); !errors.Is(err, cluster.ErrCorrupt) {
		t.Errorf("frame version 0: %v", err)
	}
}

func TestCredentialsPrintNothing(t *testing.T) {
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("m", "c", secret)
	text, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{logged.String(), string(text), fmt.Sprintf("%v %+v %#v %s", secret, secret, secret, secret)} {
		if strings.Contains(s, "stored") || strings.Contains(s, "c2") || strings.Contains(s, "115") {
			t.Errorf("shows keys: %s", s)
		}
	}
}

// FuzzDecode: whatever comes in, there is no panic and no large memory, and what
// is read once is read again the same from our own encoding.
func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		f.Add(metalogtest.Value(r))
	}
	f.Add(metalogtest.NoOp())
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := metalog.Decode(value)
		if err != nil || r == nil {
			return
		}
		again, err := metalog.Decode(metalogtest.Value(r))
		if err != nil {
			t.Fatalf("%#v: %v", r, err)
		}
		if p, ok := r.(metalog.NewPartition); ok { // null lists of old versions are empty in new ones
			for _, list := range []*[]int32{&p.Partition.Replicas, &p.Partition.ISR, &p.Partition.Removing, &p.Partition.Adding} {
				if *list == nil {
					*list = []int32{}
				}
			}
			if p.Partition.Directories == nil {
				p.Partition.Directories = []metalog.UUID{}
			}
			r = p
		}
		if b, ok := r.(metalog.RegisterBroker); ok && b.Broker.Directories == nil {
			b.Broker.Directories = []metalog.UUID{}
			r = b
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Error(diff)
		}
	})
}
