package metalog

import (
	"fmt"

	"github.com/clustermirror/mirror/cluster"
)

// The kinds of record that are read, by the number in front of each.
const (
	kindRegisterBroker   = 0
	kindUnregisterBroker = 1
	kindTopic            = 2
	kindPartition        = 3
	kindConfig           = 4
	kindPartitionChange  = 5
	kindFenceBroker      = 7
	kindUnfenceBroker    = 8
	kindRemoveTopic      = 9
	kindScram            = 11
	kindFeatureLevel     = 12
	kindProducerIDs      = 15
	kindBrokerChange     = 17
	kindRemoveScram      = 22
	kindBegin            = 23
	kindEnd              = 24
	kindAbort            = 25
	kindClearELR         = 28
)

// newest is the newest version of each kind that is known here (Kafka 4.4).
// Versions may add fields in the middle, so a newer one cannot be read.
var newest = map[uint32]uint32{
	kindRegisterBroker: 4, kindUnregisterBroker: 0, kindTopic: 0, kindPartition: 2, kindConfig: 0,
	kindPartitionChange: 2, kindFenceBroker: 0, kindUnfenceBroker: 0, kindRemoveTopic: 0, kindScram: 0,
	kindFeatureLevel: 0, kindProducerIDs: 0, kindBrokerChange: 3, kindRemoveScram: 0, kindBegin: 0, kindEnd: 0,
	kindAbort: 0, kindClearELR: 0,
}

// VersionError is a record that only a newer Kafka knows how to read.
type VersionError struct{ Kind, Version, Known uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("metadata record of kind %d has version %d, known up to %d: the cluster is newer than this program",
		e.Kind, e.Version, e.Known)
}

// Decode reads one record: frame version 1, kind and version as uvarints, then
// the body. It gives nil and no error for kinds that nobody here needs. The
// record owns its memory. Errors: a *VersionError, or one that wraps
// cluster.ErrCorrupt.
func Decode(value []byte) (Record, error) {
	c := &cursor{b: value}
	frame, kind, version := c.uvarint(), c.uvarint(), c.uvarint()
	if c.err == nil && frame != 1 {
		return nil, fmt.Errorf("%w: metadata record in frame version %d", cluster.ErrCorrupt, frame)
	}
	known, wanted := newest[kind]
	switch {
	case c.err != nil:
		return nil, fmt.Errorf("%w: metadata record: %w", cluster.ErrCorrupt, c.err)
	case !wanted:
		return nil, nil
	case version > known:
		return nil, &VersionError{Kind: kind, Version: version, Known: known}
	}
	r := body(c, kind, version)
	if c.err == nil && len(c.b) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.b))
	}
	if c.err != nil {
		return nil, fmt.Errorf("%w: metadata record of kind %d version %d: %w", cluster.ErrCorrupt, kind, version, c.err)
	}
	return r, nil
}

func body(c *cursor, kind, version uint32) Record {
	switch kind {
	case kindRegisterBroker:
		return RegisterBroker{broker(c, version)}
	case kindBrokerChange:
		return changeBroker(c)
	case kindPartition:
		return newPartition(c, version)
	case kindPartitionChange:
		return changePartition(c)
	}
	r := small(c, kind)
	c.tags(nil)
	return r
}

// small are the kinds without tagged fields of interest. The order in which Go
// evaluates the operands of a literal is that of the calls in it.
func small(c *cursor, kind uint32) Record {
	yes, no := true, false
	switch kind {
	case kindUnregisterBroker:
		return UnregisterBroker{ID: c.int32(), Epoch: c.int64()}
	case kindFenceBroker:
		return ChangeBroker{ID: c.int32(), Epoch: c.int64(), Fenced: &yes}
	case kindUnfenceBroker:
		return ChangeBroker{ID: c.int32(), Epoch: c.int64(), Fenced: &no}
	case kindTopic:
		return NewTopic{Name: c.string(), ID: cluster.TopicID(c.uuid())}
	case kindRemoveTopic:
		return RemoveTopic{ID: cluster.TopicID(c.uuid())}
	case kindConfig:
		return SetConfig{Resource: Resource{Kind: ResourceKind(c.int8()), Name: c.string()}, Key: c.string(), Value: c.nullableString()}
	case kindFeatureLevel:
		return SetFeature{Name: c.string(), Level: c.int16()}
	case kindProducerIDs:
		c.int32()
		c.int64()
		return ProducerIDs{Next: c.int64()}
	case kindScram:
		return SetCredential{
			ID:         CredentialID{User: c.string(), Mechanism: Mechanism(c.int8())},
			Credential: Credential{Salt: c.bytes(), StoredKey: c.bytes(), ServerKey: c.bytes(), Iterations: c.int32()},
		}
	case kindRemoveScram:
		return RemoveCredential{ID: CredentialID{User: c.string(), Mechanism: Mechanism(c.int8())}}
	case kindBegin:
		return BeginTransaction{}
	case kindEnd:
		return EndTransaction{}
	case kindAbort:
		return AbortTransaction{}
	}
	return ClearELR{Topic: c.string()}
}

func broker(c *cursor, version uint32) Broker {
	b := Broker{ID: c.int32()}
	if version >= 2 {
		c.bool() // a ZooKeeper broker on its way
	}
	b.Incarnation, b.Epoch = c.uuid(), c.int64()
	for n := c.length(6); n > 0 && c.err == nil; n-- {
		b.Listeners = append(b.Listeners, Listener{Name: c.string(), Host: c.string(), Port: uint16(c.int16()), Protocol: c.int16()})
		c.tags(nil)
	}
	for n := c.length(6); n > 0 && c.err == nil; n-- {
		b.Features = append(b.Features, Feature{Name: c.string(), Min: c.int16(), Max: c.int16()})
		c.tags(nil)
	}
	b.Rack, b.Fenced = c.string(), c.bool()
	if version >= 1 {
		b.InControlledShutdown = c.bool()
	}
	c.tags(func(tag uint32, f *cursor) {
		switch tag {
		case 0:
			b.Directories = f.uuids()
		case 1:
			b.Cordoned = f.uuids()
		}
	})
	return b
}

func changeBroker(c *cursor) Record {
	r := ChangeBroker{ID: c.int32(), Epoch: c.int64()}
	change := func(v int8) *bool {
		if v == 0 {
			return nil
		}
		yes := v > 0
		return &yes
	}
	c.tags(func(tag uint32, f *cursor) {
		switch tag {
		case 0:
			r.Fenced = change(f.int8())
		case 1:
			r.InControlledShutdown = change(f.int8())
		case 2:
			if dirs := f.uuids(); len(dirs) > 0 { // empty means no change, as for Kafka
				r.Directories = dirs
			}
		case 3:
			r.Cordoned = f.uuids()
		}
	})
	return r
}

func newPartition(c *cursor, version uint32) Record {
	r := NewPartition{}
	r.ID.Partition, r.ID.Topic = c.int32(), cluster.TopicID(c.uuid())
	p := &r.Partition
	p.Replicas, p.ISR, p.Removing, p.Adding = c.ids(), c.ids(), c.ids(), c.ids()
	p.Leader, p.LeaderEpoch, p.PartitionEpoch = c.int32(), c.int32(), c.int32()
	if version >= 1 {
		p.Directories = c.uuids()
	}
	c.tags(func(tag uint32, f *cursor) {
		switch tag {
		case 0:
			p.Recovering = f.int8() == 1
		case 1:
			p.ELR = f.ids()
		case 2:
			p.LastKnownELR = f.ids()
		}
	})
	return r
}

func changePartition(c *cursor) Record {
	r := ChangePartition{}
	r.ID.Partition, r.ID.Topic = c.int32(), cluster.TopicID(c.uuid())
	lists := [...]*[]int32{0: &r.ISR, 2: &r.Replicas, 3: &r.Removing, 4: &r.Adding, 6: &r.ELR, 7: &r.LastKnownELR}
	c.tags(func(tag uint32, f *cursor) {
		switch {
		case tag == 1:
			if leader := f.int32(); leader != -2 {
				r.Leader = &leader
			}
		case tag == 5:
			if state := f.int8(); state >= 0 {
				yes := state == 1
				r.Recovering = &yes
			}
		case tag == 8:
			r.Directories = f.uuids()
		case tag < uint32(len(lists)):
			*lists[tag] = f.ids()
		}
	})
	return r
}
