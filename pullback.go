package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// pullBack commits the offset of the cut for groups that have committed one behind it: what
// they have read there is gone, and what comes there instead they have not read. A share group
// whose acknowledgements are scattered, maybe behind the cut, begins anew where it starts. Groups
// with members are left alone (I11). The tasks that are left are those in which it is done.
func (m *Mirror) pullBack(ctx context.Context, ts []task) (done []task) {
	if m.opts.NoGroups {
		return ts
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.GroupTimeout)
	defer cancel()
	of := make(map[string]map[cluster.Partition][]cluster.GroupOffset)
	errs := make(map[string]error)
	for _, t := range ts {
		p := t.rec.Partition
		if _, asked := of[p.Topic]; !asked {
			if of[p.Topic], errs[p.Topic] = m.committedOn(ctx, p.Topic); errors.Is(errs[p.Topic], errors.ErrUnsupported) {
				errs[p.Topic] = nil
			}
		}
		err := errs[p.Topic]
		for _, o := range of[p.Topic][p] {
			if o.Offset <= t.rec.Cut && !o.Scattered {
				continue
			}
			again := m.place(ctx, p, o, min(o.Offset, t.rec.Cut))
			if again != nil && !errors.Is(again, cluster.ErrRefused) {
				err = errors.Join(err, fmt.Errorf("group %s: %w", o.Group, again))
			}
		}
		if err != nil {
			m.report(t, coordinator.EventFailed, fmt.Errorf("cut at offset %d, groups that have read behind it: %w", t.rec.Cut, err))
			continue
		}
		done = append(done, t)
	}
	return done
}
