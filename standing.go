package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/offsets"
)

// committedOn gives what groups have committed on a topic of the destination, and where share groups start.
func (m *Mirror) committedOn(ctx context.Context, topic string) (map[cluster.Partition][]cluster.GroupOffset, error) {
	groups, err := m.destination.Groups(ctx)
	if err != nil {
		return nil, err
	}
	names := map[bool][]string{}
	for _, g := range groups {
		share := g.Type == "share"
		names[share] = append(names[share], g.Name)
	}
	out := map[cluster.Partition][]cluster.GroupOffset{}
	for _, share := range []bool{false, true} {
		of := names[share]
		if len(of) == 0 {
			continue
		}
		slices.Sort(of)
		answers, err := m.standing(ctx, share, of)
		if err != nil {
			return nil, err
		}
		for i, name := range of {
			if err := answers[i].Err; err != nil {
				return nil, fmt.Errorf("group %s: %w", name, err)
			}
			for _, c := range answers[i].Offsets {
				if c.Partition.Topic == topic && c.Offset >= 0 {
					out[c.Partition] = append(out[c.Partition], cluster.GroupOffset{
						Group: name, Offset: c.Offset, Metadata: c.Metadata, Share: share, Scattered: c.Scattered,
					})
				}
			}
		}
	}
	return out, nil
}

// standing is where groups stand at the destination. Where share groups cannot be asked for, they
// are taken not to stand anywhere.
func (m *Mirror) standing(ctx context.Context, share bool, names []string) ([]offsets.CommittedAnswer, error) {
	if !share {
		return m.destination.Committed(ctx, names)
	}
	if s, can := m.destination.(offsets.ShareSource); can {
		answers, err := s.ShareOffsets(ctx, names)
		for i, a := range answers {
			for p, err := range a.Unknown {
				answers[i].Err = fmt.Errorf("%v: %w", p, err)
			}
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return answers, err
		}
	}
	return make([]offsets.CommittedAnswer, len(names)), nil
}

// place puts one group at an offset of the destination. A group with members refuses (I11).
func (m *Mirror) place(ctx context.Context, p cluster.Partition, o cluster.GroupOffset, at int64) error {
	one := []cluster.Committed{{Partition: p, Offset: at, Metadata: o.Metadata}}
	if !o.Share {
		return m.destination.Commit(ctx, o.Group, one)
	}
	if s, can := m.destination.(offsets.ShareSink); can {
		return s.SetShareOffsets(ctx, o.Group, one)
	}
	return fmt.Errorf("share group %s: %w", o.Group, errors.ErrUnsupported)
}
