package batch

// HasOld reports whether there is a message of format 0 or 1 in what was fetched, so that
// Convert is needed. It looks at one byte of each batch and allocates nothing.
func HasOld(b []byte) bool {
	for w := Walk(b); w.Next(); {
		if w.Header().Magic() < 2 {
			return true
		}
	}
	return false
}

// Convert makes batches of magic 2 of what was fetched, one slice each; who wants them in
// one piece has slices.Concat. Those of magic 2 are the very bytes given, and were not
// looked at. A last entry that is cut off is left out.
//
// A message set of format 0 or 1 that is wrapped becomes one batch of its codec, from the
// first record to the wrapper's own offset, with holes where compaction made some.
// Messages that stand alone are put together as long as their offsets follow each other.
// The leader epoch is -1, as old messages have none (RecordBatch.NO_PARTITION_LEADER_EPOCH).
// Timestamps are those that consumers see: -1 in format 0; the wrapper's for all where
// the broker set it. With KeepAppendTime such stay in batches with AttrLogAppendTime.
// The checksum of every old message is verified. With an error come the batches before
// the entry at fault.
func (c *Converter) Convert(b []byte) ([]Header, error) {
	run := conversion{c: c, builder: c.build(make(Header, HeaderSize))}
	run.leaderEpoch = -1
	w := Walk(b)
	for w.Next() {
		if err := run.entry(w.Header()); err != nil {
			_ = run.flush() // what is wrong came first
			return run.out, err
		}
	}
	if err := run.flush(); err != nil {
		return run.out, err
	}
	return run.out, w.Err()
}

// conversion is one run of Convert. The builder holds messages that stood alone, if it
// holds any; next is the offset after them.
type conversion struct {
	*builder
	c    *Converter
	out  []Header
	next int64
}

func (v *conversion) entry(h Header) error {
	if h.Magic() == 2 {
		err := v.flush()
		v.out = append(v.out, h)
		return err
	}
	m, err := parseLegacy(h)
	if err != nil {
		return err
	}
	if m.codec() != None {
		if err := v.flush(); err != nil {
			return err
		}
		return v.wrapper(&m)
	}
	return v.alone(&m)
}

// alone adds a message to those that wait, if it can be in one batch with them.
func (v *conversion) alone(m *legacy) error {
	attributes := v.attributesOf(m)
	fits := v.count > 0 && m.Offset == v.next && attributes == v.attributes &&
		(attributes == 0 || m.Timestamp == v.stamp)
	if fits {
		fits = HeaderSize+len(v.payload)+v.encode(&m.Record) <= v.c.maxBytes()
	}
	if !fits {
		if err := v.flush(); err != nil {
			return err
		}
		v.attributes, v.stamp = attributes, m.Timestamp
		v.start(m.Offset)
		v.encode(&m.Record)
	}
	v.put(&m.Record)
	v.next = m.Offset + 1
	return nil
}

func (v *conversion) attributesOf(m *legacy) int16 {
	attributes := int16(m.codec())
	if m.stamped() && v.c.KeepAppendTime {
		attributes |= AttrLogAppendTime
	}
	return attributes
}

// flush ends the batch of messages that stood alone.
func (v *conversion) flush() error {
	if v.count == 0 {
		return nil
	}
	h := v.finish(v.next)
	v.start(0)
	v.out = append(v.out, h)
	return nil
}

func (v *conversion) wrapper(m *legacy) error {
	inner, shift, err := v.c.decoder.inflater.unwrap(m, v.c.limit())
	if err != nil {
		return err
	}
	v.attributes, v.stamp = v.attributesOf(m), m.Timestamp
	first := true
	for w := Walk(inner); w.Next(); {
		one, err := parseLegacy(w.Header())
		if err != nil {
			return err
		}
		one.Offset += shift
		if m.stamped() {
			one.Timestamp = m.Timestamp
		}
		if first {
			v.start(one.Offset)
			first = false
		}
		v.add(&one.Record)
	}
	h := v.finish(m.Offset + 1)
	v.start(0)
	v.out, err = v.c.fit(v.out, h)
	return err
}
