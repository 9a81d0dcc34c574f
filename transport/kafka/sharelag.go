package kafka

import (
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// shareMemory is how far share groups had come for certain. Brokers know no more of that when the
// next record is there; groups would go back then until it is acknowledged.
type shareMemory struct {
	mu sync.Mutex
	of map[shareKey]cluster.Span // from the start that is written down to where the group stands
}

// place is where a share group stands, which by what is written down starts at o. end is the log's end of
// before the lag was asked for.
func (m *shareMemory) place(key shareKey, o cluster.Committed, end, lag int64) cluster.Committed {
	m.mu.Lock()
	defer m.mu.Unlock()
	acknowledged := end - o.Offset - lag // or more: the log may have grown meanwhile
	knew, known := m.of[key]
	delete(m.of, key)
	if acknowledged <= 0 {
		return o
	}
	stands := o.Offset
	switch {
	case lag == 0:
		stands = end
	// Start and acknowledgements only grow, unless somebody sets them anew.
	case known && knew.From == o.Offset && acknowledged >= knew.To-knew.From:
		stands = knew.To
	}
	if stands > o.Offset {
		if m.of == nil {
			m.of = map[shareKey]cluster.Span{}
		}
		m.of[key] = cluster.Span{From: o.Offset, To: stands}
	}
	o.Scattered = acknowledged > stands-o.Offset
	o.Offset = stands
	return o
}
