package lead

import (
	"slices"

	"github.com/clustermirror/mirror/internal/batch"
)

// remembered is how many transactions that are over are remembered, for cuts.
const remembered = 1000

// transaction is one that is open, or whose marker stands at offset marker.
type transaction struct {
	OpenTxn
	marker int64 // -1: open
}

// transactions follows which transactions are open at the log end, by the headers of
// batches. One that is over holds the last stable offset until its marker is below the
// high watermark (ProducerStateManager.firstUnstableOffset).
type transactions struct {
	open map[int64]*transaction
	// list holds the open ones and those that are over and not yet stable, by first
	// offset; stable ones in between are taken out now and then.
	list    []*transaction
	stable  int64          // high watermark
	over    []*transaction // stable ones, oldest marker first
	lost    int64          // the highest marker of one that is not remembered, -1 none
	unknown bool           // a cut has opened transactions that are not remembered
}

func newTransactions(open []OpenTxn) transactions {
	t := transactions{lost: -1}
	for _, o := range open {
		t.add(&transaction{OpenTxn: o, marker: -1})
	}
	t.sort()
	return t
}

func (t *transactions) add(x *transaction) {
	if t.open == nil { // most partitions never need it
		t.open = map[int64]*transaction{}
	}
	t.open[x.Producer] = x
	t.list = append(t.list, x)
}

func (t *transactions) sort() {
	slices.SortFunc(t.list, func(a, b *transaction) int {
		switch {
		case a.First < b.First:
			return -1
		case a.First > b.First:
			return 1
		}
		return 0
	})
}

// note sees a batch that was appended.
func (t *transactions) note(h batch.Header) {
	if !h.Transactional() {
		return
	}
	x := t.open[h.ProducerID()]
	switch {
	case h.Control() && x != nil:
		x.marker = h.Base()
		delete(t.open, x.Producer)
	case h.Control():
	case x == nil:
		t.add(&transaction{OpenTxn: OpenTxn{Producer: h.ProducerID(), Epoch: h.ProducerEpoch(), First: h.Base()}, marker: -1})
	default:
		x.Epoch = h.ProducerEpoch()
	}
}

// lastStable is the first offset of a transaction that is not over below the high
// watermark, which it also is when there is none.
func (t *transactions) lastStable(highWatermark int64) int64 {
	t.stable = highWatermark
	n := 0
	for n < len(t.list) && t.settled(t.list[n]) {
		t.remember(t.list[n])
		n++
	}
	if n > 0 {
		t.list = slices.Delete(t.list, 0, n)
	}
	if len(t.list) == 0 {
		return highWatermark
	}
	if len(t.list) > 2*len(t.open)+remembered {
		t.list = slices.DeleteFunc(t.list, func(x *transaction) bool {
			if t.settled(x) {
				t.remember(x)
				return true
			}
			return false
		})
	}
	return min(t.list[0].First, highWatermark)
}

func (t *transactions) settled(x *transaction) bool { return x.marker >= 0 && x.marker < t.stable }

func (t *transactions) remember(x *transaction) {
	if len(t.over) == 2*remembered {
		slices.SortFunc(t.over, func(a, b *transaction) int { return int(min(max(a.marker-b.marker, -1), 1)) })
		t.lost = max(t.lost, t.over[remembered-1].marker)
		t.over = slices.Delete(t.over, 0, remembered)
	}
	t.over = append(t.over, x)
}

// cut forgets what began at the offset or behind, and opens again what ended there.
func (t *transactions) cut(offset int64) {
	all := append(t.list, t.over...)
	t.list, t.over = nil, nil
	clear(t.open)
	t.unknown = t.unknown || t.lost >= offset
	for _, x := range all {
		switch {
		case x.First >= offset:
		case x.marker >= 0 && x.marker < offset && x.marker < t.stable:
			t.over = append(t.over, x)
		case x.marker >= 0 && x.marker < offset:
			t.list = append(t.list, x)
		default:
			x.marker = -1
			t.add(x)
		}
	}
	t.stable = min(t.stable, offset)
	t.sort()
}

// all are the open ones by first offset.
func (t *transactions) all() []OpenTxn {
	var out []OpenTxn
	for _, x := range t.list {
		if x.marker < 0 {
			out = append(out, x.OpenTxn)
		}
	}
	return out
}
