package kafka

import (
	"fmt"
	"strings"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
)

// GapFill says what takes the place of offsets for which the source has no record that
// readers of committed records see: what compaction or retention has removed,
// transaction markers, aborted records. A client cannot leave offsets out; something
// has to stand there that consumers skip. None of the ways is invisible to every
// client, see docs/decisions/0011.
type GapFill int

const (
	// GapAuto fills with markers where the cluster permits them; where it does not, the
	// partition fails with cluster.ErrGap, which names the permission and the choice.
	GapAuto GapFill = iota
	// GapMarkers fills with transaction markers (WriteTxnMarkers). They need ALTER, or
	// before Kafka 3.8 CLUSTER_ACTION, on the cluster. Every markers' gap costs a round
	// trip during which nothing else of its partition is sent. Markers carry the time of
	// the broker, which a look-up of offsets by time may find.
	GapMarkers
	// GapPhantoms fills with records whose offsets lie outside of their batch. They need
	// nothing but the right to write, cost 7 to 11 bytes an offset and are part of the
	// compare-and-append. kafka-python shows them; sarama and kafkajs stall when one fetch
	// holds nothing else, so in front of about 100,000 of them in a row.
	GapPhantoms
	// GapFail fills nothing: a gap, a transaction or a timestamp of the source's broker
	// stops the partition.
	GapFail
)

var gapFillNames = [...]string{"auto", "markers", "phantoms", "fail"}

// String is the way's name: auto, markers, phantoms or fail.
func (g GapFill) String() string {
	if !g.valid() {
		return fmt.Sprintf("GapFill(%d)", int(g))
	}
	return gapFillNames[g]
}

func (g GapFill) valid() bool { return g >= 0 && int(g) < len(gapFillNames) }

// ParseGapFill is the way with a name that String gives.
func ParseGapFill(name string) (GapFill, error) {
	for i, n := range gapFillNames {
		if n == name {
			return GapFill(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of %s", name, strings.Join(gapFillNames[:], ", "))
}

// admission is how a batch that may be appended is treated.
type admission int

const (
	asItIs   admission = iota // sent as it is
	prepared                  // filled or rewritten first
)

// admit checks a batch that is to be queued behind next.
func (l *lane) admit(b *cluster.Batch, next int64) (admission, error) {
	refuse := func(err error, format string, args ...any) (admission, error) {
		return 0, &cluster.OffsetError{Partition: l.p, Span: cluster.Span{From: b.Base, To: b.Next}, Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	hole := b.Hole()
	switch {
	case l.fills && b.Base > next:
		return refuse(cluster.ErrGap, "nothing is said about the offsets from %d on", next)
	case b.Base != next || b.Next <= b.Base || hole && !l.fills || !hole && len(b.Bytes) < batch.HeaderSize:
		return refuse(cluster.ErrOutOfOrder, "the log goes on at %d", next)
	case hole:
		return prepared, nil
	}
	h := batch.Header(b.Bytes)
	records := int64(h.Count())
	switch {
	case h.Control():
		return refuse(cluster.ErrControlBatch, "")
	case records > b.Next-b.Base:
		return refuse(cluster.ErrCorrupt, "%d records at %d offsets", records, b.Next-b.Base)
	case !l.fills && h.Transactional():
		return refuse(cluster.ErrTransactional, "")
	case !l.fills && h.LogAppendTime():
		return refuse(cluster.ErrLogAppendTime, "")
	case l.fills && (!h.Producible()):
		return prepared, nil
	}
	return asItIs, nil
}
