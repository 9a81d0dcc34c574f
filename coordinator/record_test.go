package coordinator

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/epoch"
)

func TestRecordJSON(t *testing.T) {
	full := Record{
		Partition: testPartition, TopicID: cluster.TopicID{1, 2, 3}, State: StateFailed, Previous: StateULERecovery,
		Desired: WantMirroring, OwnerEpoch: 3, StateEpoch: 14, Reason: "broker unreachable", Retriable: true, Attempts: 2,
		Cut: 0, Position: cluster.Position{Epoch: 4, Offset: 99}, HasPosition: true, Appended: true, Stretch: 2,
		Aligned: true, Alignment: "history", Epochs: epoch.History{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 50}}, Unproven: true, Intent: 8,
	}
	for name, rec := range map[string]Record{"full": full, "new": newRecord(testPartition)} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			var back Record
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if diff := cmp.Diff(rec, back); diff != "" {
				t.Errorf("%s (-wrote +read):\n%s", data, diff)
			}
		})
	}
}

func TestRecordJSONRefuses(t *testing.T) {
	head := `{"v":1,"partition":{"topic":"t","partition":0},"previous":"UNKNOWN","desired":"MIRRORING"`
	tests := []struct{ name, data string }{
		{"another version", `{"v":2,"partition":{"topic":"t","partition":0},"state":"PAUSED","previous":"UNKNOWN","desired":"MIRRORING"}`},
		{"no partition", `{"v":1,"state":"PAUSED","previous":"UNKNOWN","desired":"MIRRORING"}`},
		{"unknown state", head + `,"state":"SLEEPING"}`},
		{"a cut without offset", head + `,"state":"ULE_RECOVERY"}`},
		{"a short topic id", head + `,"state":"PAUSED","topicId":"AAAA"}`},
		{"a history that goes back", head + `,"state":"PAUSED","epochs":[{"epoch":2,"start":5},{"epoch":1,"start":9}]}`},
	}
	if err := json.Unmarshal([]byte(head+`,"state":"PAUSED"}`), new(Record)); err != nil {
		t.Fatalf("the cases differ by more than one thing: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var rec Record
			if err := json.Unmarshal([]byte(tt.data), &rec); err == nil {
				t.Errorf("read as %+v", rec)
			}
		})
	}
}
