package broker

import (
	"bufio"
	"encoding/binary"
	"net"
	"time"
)

// fetchAnswer is the answer to a follower's fetch of version 12 and later, as far as
// a leader without tiers and snapshots has something to say.
type fetchAnswer struct {
	version, code int16
	session       int32
	entries       []entry
}

// fetchWriter turns answers into bytes: what frames the records is written into one
// buffer, and the records go out from where they lie. It is for one connection.
type fetchWriter struct {
	head []byte
	cuts []cut
	vec  net.Buffers
}

// cut says that records stand behind head[:at].
type cut struct {
	at      int
	records [][]byte
}

// write sends an answer. The records may be reused when it returns.
func (w *fetchWriter) write(conn net.Conn, patience time.Duration, correlation int32, a *fetchAnswer) error {
	w.encode(correlation, a)
	conn.SetWriteDeadline(time.Now().Add(patience))
	vec := w.vec // WriteTo moves what it is called on
	if _, ok := conn.(*net.TCPConn); ok {
		_, err := vec.WriteTo(conn)
		return err
	}
	joined := bufio.NewWriterSize(conn, 32<<10) // TLS: not a record for each small piece
	if _, err := vec.WriteTo(joined); err != nil {
		return err
	}
	return joined.Flush()
}

// encode fills vec with the whole frame.
func (w *fetchWriter) encode(correlation int32, a *fetchAnswer) {
	w.head, w.cuts = w.head[:0], w.cuts[:0]
	clear(w.vec[:cap(w.vec)])
	w.vec = w.vec[:0]

	b := binary.BigEndian.AppendUint32(w.head, 0) // the size, when it is known
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0)                        // tags of the header
	b = binary.BigEndian.AppendUint32(b, 0) // not throttled
	b = binary.BigEndian.AppendUint16(b, uint16(a.code))
	b = binary.BigEndian.AppendUint32(b, uint32(a.session))
	b = binary.AppendUvarint(b, uint64(topicsOf(a.entries, a.version))+1)
	size := 0
	for rest := a.entries; len(rest) > 0; {
		n := sameTopic(rest, a.version)
		b = appendTopic(b, &rest[0].fetchKey, a.version)
		b = binary.AppendUvarint(b, uint64(n)+1)
		for i := range rest[:n] {
			e := &rest[i]
			b = appendPartition(b, e)
			w.cuts = append(w.cuts, cut{len(b), e.records})
			size += e.size
			b = appendDiverging(b, e)
		}
		b = append(b, 0) // tags of the topic
		rest = rest[n:]
	}
	b = append(b, 0) // tags of the answer
	binary.BigEndian.PutUint32(b, uint32(len(b)-4+size))
	w.head = b
	w.join()
}

// join puts the frame together. It is done at the end, as head moves while it grows.
func (w *fetchWriter) join() {
	from := 0
	for _, c := range w.cuts {
		if len(c.records) == 0 {
			continue
		}
		w.vec = append(w.vec, w.head[from:c.at])
		w.vec = append(w.vec, c.records...)
		from = c.at
	}
	w.vec = append(w.vec, w.head[from:])
	clear(w.cuts)
}

// sameTopic is how many entries in front are of one topic.
func sameTopic(entries []entry, version int16) int {
	n := 1
	for n < len(entries) && entries[n].topic == entries[0].topic && (version > 12 || entries[n].name == entries[0].name) {
		n++
	}
	return n
}

func topicsOf(entries []entry, version int16) (topics int) {
	for ; len(entries) > 0; topics++ {
		entries = entries[sameTopic(entries, version):]
	}
	return topics
}

// appendTopic names a topic: by its name in version 12, by its id later.
func appendTopic(b []byte, k *fetchKey, version int16) []byte {
	if version > 12 {
		return append(b, k.topic[:]...)
	}
	return append(binary.AppendUvarint(b, uint64(len(k.name))+1), k.name...)
}

// appendPartition is everything up to the records, their length included. Records
// that are not there have length 0 and are not null.
func appendPartition(b []byte, e *entry) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(e.partition))
	b = binary.BigEndian.AppendUint16(b, uint16(e.code))
	b = binary.BigEndian.AppendUint64(b, uint64(e.mark))
	b = binary.BigEndian.AppendUint64(b, uint64(e.stable))
	b = binary.BigEndian.AppendUint64(b, uint64(e.start))
	b = append(b, 0)                                 // no list of aborted transactions
	b = binary.BigEndian.AppendUint32(b, 0xffffffff) // no preferred replica
	return binary.AppendUvarint(b, uint64(e.size)+1)
}

// appendDiverging is the tags behind the records.
func appendDiverging(b []byte, e *entry) []byte {
	if e.diverging.Epoch < 0 && e.diverging.EndOffset < 0 {
		return append(b, 0)
	}
	b = append(b, 1, 0, 13) // one tag: number 0 of 13 bytes
	b = binary.BigEndian.AppendUint32(b, uint32(e.diverging.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(e.diverging.EndOffset))
	return append(b, 0)
}
