package metalogtest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/metalog"
)

// Value encodes a record as Kafka 4.4 would, newest versions throughout.
func Value(r metalog.Record) []byte {
	switch r := r.(type) {
	case metalog.RegisterBroker:
		return registerBroker(r.Broker)
	case metalog.ChangeBroker:
		w := frame(17, 3).i32(r.ID).i64(r.Epoch)
		var t tags
		t.tristate(0, r.Fenced)
		t.tristate(1, r.InControlledShutdown)
		if r.Directories != nil {
			t.add(2, w0().uuids(r.Directories))
		}
		if r.Cordoned != nil {
			t.add(3, w0().uuids(r.Cordoned))
		}
		return w.tags(t)
	case metalog.NewPartition:
		p := r.Partition
		w := frame(3, 2).i32(r.ID.Partition).uuid(metalog.UUID(r.ID.Topic)).ids(p.Replicas).ids(p.ISR).ids(p.Removing).ids(p.Adding)
		w = w.i32(p.Leader).i32(p.LeaderEpoch).i32(p.PartitionEpoch).uuids(p.Directories)
		var t tags
		if p.Recovering {
			t.add(0, w0().i8(1))
		}
		t.ids(1, p.ELR)
		t.ids(2, p.LastKnownELR)
		return w.tags(t)
	case metalog.ChangePartition:
		return changePartition(r)
	}
	return small(r).tags(tags{})
}

func small(r metalog.Record) writer {
	switch r := r.(type) {
	case metalog.UnregisterBroker:
		return frame(1, 0).i32(r.ID).i64(r.Epoch)
	case metalog.NewTopic:
		return frame(2, 0).str(r.Name).uuid(metalog.UUID(r.ID))
	case metalog.RemoveTopic:
		return frame(9, 0).uuid(metalog.UUID(r.ID))
	case metalog.SetConfig:
		return frame(4, 0).i8(int8(r.Resource.Kind)).str(r.Resource.Name).str(r.Key).nullable(r.Value)
	case metalog.SetFeature:
		return frame(12, 0).str(r.Name).i16(r.Level)
	case metalog.ProducerIDs:
		return frame(15, 0).i32(1).i64(7).i64(r.Next)
	case metalog.SetCredential:
		c := r.Credential
		return frame(11, 0).str(r.ID.User).i8(int8(r.ID.Mechanism)).str(string(c.Salt)).str(string(c.StoredKey)).
			str(string(c.ServerKey)).i32(c.Iterations)
	case metalog.RemoveCredential:
		return frame(22, 0).str(r.ID.User).i8(int8(r.ID.Mechanism))
	case metalog.BeginTransaction:
		return frame(23, 0)
	case metalog.EndTransaction:
		return frame(24, 0)
	case metalog.AbortTransaction:
		return frame(25, 0)
	case metalog.ClearELR:
		return frame(28, 0).str(r.Topic)
	}
	panic(fmt.Sprintf("metalogtest: no encoding of %T", r))
}

// NoOp encodes a NoOpRecord, one of the kinds that a reader leaves out.
func NoOp() []byte { return frame(20, 0).tags(tags{}) }

func registerBroker(b metalog.Broker) []byte {
	w := frame(0, 4).i32(b.ID).i8(0).uuid(b.Incarnation).i64(b.Epoch).uv(len(b.Listeners) + 1)
	for _, l := range b.Listeners {
		w = w.str(l.Name).str(l.Host).i16(int16(l.Port)).i16(l.Protocol).uv(0)
	}
	w = w.uv(len(b.Features) + 1)
	for _, f := range b.Features {
		w = w.str(f.Name).i16(f.Min).i16(f.Max).uv(0)
	}
	if b.Rack == "" {
		w = w.uv(0)
	} else {
		w = w.str(b.Rack)
	}
	w = w.flag(b.Fenced).flag(b.InControlledShutdown)
	var t tags
	t.add(0, w0().uuids(b.Directories))
	if b.Cordoned != nil {
		t.add(1, w0().uuids(b.Cordoned))
	}
	return w.tags(t)
}

func changePartition(r metalog.ChangePartition) []byte {
	w := frame(5, 2).i32(r.ID.Partition).uuid(metalog.UUID(r.ID.Topic))
	var t tags
	t.ids(0, r.ISR)
	if r.Leader != nil {
		t.add(1, w0().i32(*r.Leader))
	}
	t.ids(2, r.Replicas)
	t.ids(3, r.Removing)
	t.ids(4, r.Adding)
	if r.Recovering != nil {
		t.add(5, w0().flag(*r.Recovering))
	}
	t.ids(6, r.ELR)
	t.ids(7, r.LastKnownELR)
	if r.Directories != nil {
		t.add(8, w0().uuids(r.Directories))
	}
	return w.tags(t)
}

// Batch builds one batch of the log out of encoded records.
func Batch(base int64, epoch int32, control bool, values ...[]byte) []byte {
	s := batch.Spec{Base: base, LeaderEpoch: epoch}
	if control {
		s.Attributes = batch.AttrControl
	}
	for i, v := range values {
		s.Records = append(s.Records, batch.Record{Offset: base + int64(i), Timestamp: time.Now().UnixMilli(), Value: v})
	}
	return batch.Encode(s)
}

// writer builds the flexible encoding.
type writer []byte

func w0() writer                             { return nil }
func frame(kind, version int) writer         { return w0().uv(1).uv(kind).uv(version) }
func (w writer) uv(n int) writer             { return binary.AppendUvarint(w, uint64(n)) }
func (w writer) i8(v int8) writer            { return append(w, byte(v)) }
func (w writer) i16(v int16) writer          { return binary.BigEndian.AppendUint16(w, uint16(v)) }
func (w writer) i32(v int32) writer          { return binary.BigEndian.AppendUint32(w, uint32(v)) }
func (w writer) i64(v int64) writer          { return binary.BigEndian.AppendUint64(w, uint64(v)) }
func (w writer) str(s string) writer         { return append(w.uv(len(s)+1), s...) }
func (w writer) uuid(id metalog.UUID) writer { return append(w, id[:]...) }
func (w writer) nullable(s *string) writer {
	if s == nil {
		return w.uv(0)
	}
	return w.str(*s)
}

func (w writer) flag(v bool) writer {
	if v {
		return w.i8(1)
	}
	return w.i8(0)
}

func (w writer) ids(list []int32) writer {
	w = w.uv(len(list) + 1)
	for _, v := range list {
		w = w.i32(v)
	}
	return w
}

func (w writer) uuids(list []metalog.UUID) writer {
	w = w.uv(len(list) + 1)
	for _, v := range list {
		w = w.uuid(v)
	}
	return w
}

// tags are tagged fields in ascending order.
type tags struct {
	n int
	b writer
}

func (t *tags) add(tag int, body writer) {
	t.n++
	t.b = append(t.b.uv(tag).uv(len(body)), body...)
}

// ids adds a list that is not nil.
func (t *tags) ids(tag int, list []int32) {
	if list != nil {
		t.add(tag, w0().ids(list))
	}
}

// tristate adds 1 for true and -1 for false.
func (t *tags) tristate(tag int, v *bool) {
	if v == nil {
		return
	}
	if *v {
		t.add(tag, w0().i8(1))
	} else {
		t.add(tag, w0().i8(-1))
	}
}

func (w writer) tags(t tags) []byte { return append(w.uv(t.n), t.b...) }
