package simulation

import (
	"fmt"
	"strings"

	"github.com/clustermirror/mirror/cluster"
)

// dump shows the logs of a cluster: the leader's, and followers' that differ.
func (w *world) dump(s Step) {
	for _, p := range w.partitions(s.At) {
		st, err := w.clusters[s.At].State(p)
		if err != nil {
			continue
		}
		text := w.clusters[s.At].Dump(p)
		fmt.Fprintf(&w.output, "%s %v epoch %d %s", s.At, p, st.Leader.Epoch, indent(text))
		for _, r := range st.Replicas {
			if other := w.clusters[s.At].DumpOf(p, r.Broker); other != text {
				fmt.Fprintf(&w.output, "  broker %d %s", r.Broker, indent(other))
			}
		}
	}
}

func indent(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

// status shows what is stored of a mirror, what its process says, and what it has
// told of.
func (w *world) status(s Step, p *process) {
	for _, part := range w.partitions(p.destination()) {
		rec, ok := w.record(s.Mirror, part)
		if !ok {
			fmt.Fprintf(&w.output, "%s %v unknown\n", s.Mirror, part)
			continue
		}
		fmt.Fprintf(&w.output, "%s %v %s", s.Mirror, part, rec.State)
		if rec.HasPosition {
			fmt.Fprintf(&w.output, " position %d/%d", rec.Position.Epoch, rec.Position.Offset)
		}
		if rec.Reason != "" {
			fmt.Fprintf(&w.output, " because %s", rec.Reason)
		}
		w.output.WriteString("\n")
		w.toldOf(p, part)
	}
}

func (w *world) toldOf(p *process, part cluster.Partition) {
	p.told.mu.Lock()
	defer p.told.mu.Unlock()
	for _, span := range p.told.skipped[part] {
		fmt.Fprintf(&w.output, "  skipped %v\n", span)
	}
	for _, span := range p.told.truncated[part] {
		fmt.Fprintf(&w.output, "  truncated %v\n", span)
	}
}
