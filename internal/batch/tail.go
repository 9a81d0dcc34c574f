package batch

import "slices"

// Tail is a batch of its own that holds the records of h from an offset inside of it
// on, at their offsets and with all else that h has: codec, timestamps, producer,
// attributes. When no record is left it has none, and still reaches up to h's end. It
// is for a log that ends inside of a batch that is left whole elsewhere.
func Tail(h Header, from int64) ([]byte, error) {
	s := Spec{
		Base: from, LeaderEpoch: h.LeaderEpoch(), Codec: h.Codec(), Attributes: h.Attributes(), Next: h.Next(), Timestamp: h.MaxTimestamp(),
	}
	if h.DeleteHorizon() {
		s.Timestamp, s.AppendTime = h.BaseTimestamp(), h.MaxTimestamp()
	}
	dropped := int32(0)
	err := Decode(h, func(r Record) error {
		if r.Offset < from || r.Phantom {
			dropped++
			return nil
		}
		s.Records = append(s.Records, r.clone())
		return nil
	})
	if err != nil {
		return nil, err
	}
	if h.ProducerID() >= 0 {
		s.Producer = &Producer{ID: h.ProducerID(), Epoch: h.ProducerEpoch(), Sequence: h.BaseSequence()}
		if s.Producer.Sequence >= 0 {
			s.Producer.Sequence = int32((int64(s.Producer.Sequence) + int64(dropped)) & 0x7fffffff)
		}
	}
	return Encode(s), nil
}

// clone is a record with memory of its own.
func (r Record) clone() Record {
	r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i] = RecordHeader{slices.Clone(r.Headers[i].Key), slices.Clone(r.Headers[i].Value)}
	}
	return r
}
