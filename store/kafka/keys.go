package kafka

import (
	"errors"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// The first words of the keys.
const (
	kindRecord     = "record"
	kindDefinition = "definition"
	kindIntent     = "intent"
	kindNote       = "note"
)

// slot is a place that holds one value: the record of a partition, the definition of a
// mirror, or a note.
type slot struct {
	mirror     string
	partition  cluster.Partition // of a record
	definition bool
	note       string // key of a note, not empty
}

func recordSlot(mirror string, p cluster.Partition) slot { return slot{mirror: mirror, partition: p} }

func definitionSlot(mirror string) slot { return slot{mirror: mirror, definition: true} }

func noteSlot(mirror, key string) slot { return slot{mirror: mirror, note: key} }

func (s slot) kind() string {
	switch {
	case s.definition:
		return kindDefinition
	case s.note != "":
		return kindNote
	}
	return kindRecord
}

// PartitionOf is the partition of the state topic, of so many, that holds the record
// of p in a mirror: FNV-1a (32 bits) of "mirror/topic/partition" modulo the number of
// partitions. Whoever owns the partition of the state topic can own p.
func PartitionOf(mirror string, p cluster.Partition, partitions int32) int32 {
	return spread(mirror+"/"+p.Topic+"/"+strconv.Itoa(int(p.Partition)), partitions)
}

// MirrorPartitionOf is the partition of the state topic that holds a mirror's
// definition, all its intents and its notes: FNV-1a (32 bits) of the mirror's name
// modulo the number of partitions.
func MirrorPartitionOf(mirror string, partitions int32) int32 { return spread(mirror, partitions) }

func spread(text string, partitions int32) int32 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int32(h.Sum32() % uint32(partitions))
}

func (s slot) home(partitions int32) int32 {
	if s.kind() == kindRecord {
		return PartitionOf(s.mirror, s.partition, partitions)
	}
	return MirrorPartitionOf(s.mirror, partitions)
}

// key is a parsed key. Values in slots have keys that nobody else ever writes: the
// turn, which grows by one with every value of the slot, and a token of the attempt.
type key struct {
	kind  string
	slot  slot
	topic string // of an intent
	turn  int64
	token string
}

var errKey = errors.New("not a key of ours")

// escape keeps what a topic name may hold as it is.
func escape(s string) string { return url.PathEscape(s) }

func (s slot) key(turn int64, token string) string {
	parts := []string{s.kind(), escape(s.mirror)}
	switch s.kind() {
	case kindRecord:
		parts = append(parts, escape(s.partition.Topic), strconv.Itoa(int(s.partition.Partition)))
	case kindNote:
		parts = append(parts, escape(s.note))
	}
	return strings.Join(append(parts, strconv.FormatInt(turn, 10), token), "/")
}

func intentKey(mirror, topic string) string {
	return strings.Join([]string{kindIntent, escape(mirror), escape(topic)}, "/")
}

// parseKey reads a key. Keys of kinds that this version does not know are errKey, too:
// a later version's, which are left alone.
func parseKey(text string) (k key, err error) {
	parts := strings.Split(text, "/")
	want := map[string]int{kindRecord: 6, kindDefinition: 4, kindIntent: 3, kindNote: 5}[parts[0]]
	if len(parts) != want {
		return key{}, errKey
	}
	k.kind = parts[0]
	k.slot.definition = k.kind == kindDefinition
	if k.slot.mirror, err = url.PathUnescape(parts[1]); err != nil {
		return key{}, errKey
	}
	switch k.kind {
	case kindIntent:
		k.topic, err = url.PathUnescape(parts[2])
	case kindRecord:
		k.slot.partition, err = parsePartition(parts[2], parts[3])
	case kindNote:
		if k.slot.note, err = url.PathUnescape(parts[2]); k.slot.note == "" {
			return key{}, errKey
		}
	}
	if err == nil && k.kind != kindIntent {
		k.token = parts[want-1]
		k.turn, err = strconv.ParseInt(parts[want-2], 10, 64)
	}
	if err != nil || k.kind != kindIntent && (k.turn < 1 || k.token == "") {
		return key{}, errKey
	}
	return k, nil
}

func parsePartition(topic, number string) (cluster.Partition, error) {
	name, err := url.PathUnescape(topic)
	if err != nil {
		return cluster.Partition{}, err
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || name == "" {
		return cluster.Partition{}, errKey
	}
	return cluster.Partition{Topic: name, Partition: int32(n)}, nil
}
