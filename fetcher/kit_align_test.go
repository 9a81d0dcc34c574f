package fetcher

import "context"

// aligned is Align with its outcomes in the order of the targets.
func aligned(ctx context.Context, source Source, log Log, destination Reader, targets []Target) []Aligned {
	out := make([]Aligned, len(targets))
	Align(ctx, source, log, destination, targets, func(i int, a Aligned) { out[i] = a })
	return out
}
