package kafka

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/coordinator"
)

// valueVersion is the version of the values whose form is this package's. Records
// carry coordinator's own.
const valueVersion = 1

// grave is the value of a slot whose content was deleted. It stays, so that the
// turns of the slot go on rising.
var grave = []byte(`{"v":1,"deleted":true}`)

type storedDefinition struct {
	Version int `json:"v"`
	coordinator.Definition
}

type storedIntent struct {
	Version int                 `json:"v"`
	Topic   string              `json:"topic"`
	Desired coordinator.Desired `json:"desired"`
	Recover bool                `json:"recover,omitempty"`
}

func encodeDefinition(d coordinator.Definition) ([]byte, error) {
	return json.Marshal(storedDefinition{valueVersion, d})
}

func encodeIntent(in coordinator.Intent) ([]byte, error) {
	return json.Marshal(storedIntent{valueVersion, in.Topic, in.Desired, in.Recover})
}

func decodeDefinition(b []byte) (coordinator.Definition, error) {
	var s storedDefinition
	if err := json.Unmarshal(b, &s); err != nil {
		return coordinator.Definition{}, err
	}
	return s.Definition, checkVersion(s.Version)
}

// decodeIntent gives the intent that stands at an offset, which makes its revision:
// all intents of a mirror stand in one partition.
func decodeIntent(b []byte, offset int64) (coordinator.Intent, error) {
	var s storedIntent
	if err := json.Unmarshal(b, &s); err != nil {
		return coordinator.Intent{}, err
	}
	in := coordinator.Intent{Topic: s.Topic, Desired: s.Desired, Recover: s.Recover, Revision: offset + 1}
	if err := checkVersion(s.Version); err != nil {
		return in, err
	}
	if !s.Desired.Valid() {
		return in, fmt.Errorf("desired state %q is not known", s.Desired)
	}
	return in, nil
}

// encodeNote takes a JSON document as it is: a reader finds the same bytes.
func encodeNote(note []byte) []byte {
	return slices.Concat([]byte(`{"v":1,"note":`), note, []byte("}"))
}

func decodeNote(b []byte) ([]byte, error) {
	var s struct {
		Version int             `json:"v"`
		Note    json.RawMessage `json:"note"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	return s.Note, checkVersion(s.Version)
}

func checkVersion(v int) error {
	if v != valueVersion {
		return fmt.Errorf("value version %d is not known (this library writes %d)", v, valueVersion)
	}
	return nil
}

// value is what stands in a slot, read when it is first asked for: most values of a
// log are superseded before anybody asks.
type value struct {
	turn    int64
	key     string
	raw     []byte // nil once it was read
	deleted bool

	record     coordinator.Record
	definition coordinator.Definition
	note       []byte
	err        error
}

// read decodes the value.
func (v *value) read(kind string) {
	if v.raw == nil {
		return
	}
	var probe struct {
		Deleted bool `json:"deleted"`
	}
	if len(v.raw) <= 2*len(grave) && json.Unmarshal(v.raw, &probe) == nil && probe.Deleted {
		v.deleted = true
	} else {
		switch kind {
		case kindDefinition:
			v.definition, v.err = decodeDefinition(v.raw)
		case kindNote:
			v.note, v.err = decodeNote(v.raw)
		default:
			v.err = json.Unmarshal(v.raw, &v.record)
		}
	}
	if v.err != nil {
		v.err = fmt.Errorf("value of %s cannot be read: %w", v.key, v.err)
	}
	v.raw = nil
}
