package simulation

// A mutation breaks the engine in one place. What it breaks has to be found.
type mutation struct {
	name     string
	rule     string // what breaks, for readers
	file     string // from the module's root
	old, new string // old stands in the file once
	few      bool   // one of those that are tried in every run
}

func mutations() []mutation {
	return []mutation{
		{
			name: "position-after-fence", rule: "I6", file: "stop.go", few: true,
			old: "	live = m.storePositions(ctx, live)\n	m.settleAll(ctx, live)\n",
			new: `	early := make([]cluster.Partition, len(live))
	for i, s := range live {
		early[i] = s.rec.Partition
	}
	m.fenceLate(ctx, early)
	live = m.storePositions(ctx, live)
	m.settleAll(ctx, live)
`,
		},
		{
			name: "no-drain", rule: "I4, I6", file: "perform.go",
			old: "	if err := m.fetch.Remove(ctx, ps...); err != nil {\n		return nil, err\n	}\n	if err := m.aligning.wait",
			new: "	if err := m.aligning.wait",
		},
		{
			name: "position-ignored-at-failback", rule: "I1, E2", file: "fetcher/alignment.go",
			old: "		if keep = min(keep, peer.Offset); end >= 0 {\n",
			new: "		if end >= 0 {\n",
		},
		{
			name: "epoch-ceiling-ignored", rule: "I5", file: "fetcher/gap.go",
			old: "	if c := t.board.Ceiling.Load(); c >= 0 {\n",
			new: "	if c := t.board.Ceiling.Load(); c >= 1<<30 {\n",
		},
		{
			name: "divergence-ignored", rule: "I1, E4", file: "fetcher/answers.go",
			old: "	if part.Diverging.EndOffset >= 0 {\n",
			new: "	if part.Diverging.EndOffset >= 1<<62 {\n",
		},
		{
			name: "position-not-read-again", rule: "I3", file: "fetcher/results.go", few: true,
			old: "			t.reset(l.ends[i].LogEnd)\n",
			new: "			t.reset(t.next)\n",
		},
		{
			name: "act-before-store", rule: "I7", file: "coordinator/save.go",
			old: "	errs := l.store.Save(ctx, l.mirror, records)\n",
			new: `	for _, ch := range batch {
		l.act(ctx, ch.entry, ch.effects)
	}
	errs := l.store.Save(ctx, l.mirror, records)
`,
		},
		{
			name: "owner-not-raised", rule: "C11.3", file: "coordinator/step.go",
			old: "		rec.OwnerEpoch++\n",
			new: "		rec.OwnerEpoch += 0\n",
		},
		{
			name: "history-not-stored", rule: "I7", file: "coordinator/step.go",
			old: "	rec.Epochs = append(slices.Clip(kept), EpochStart{Epoch: ev.Epoch, Start: ev.Start}).",
			new: "	rec.Epochs = append(slices.Clip(kept), EpochStart{Epoch: ev.Epoch, Start: ev.Start})[:len(kept)].",
		},
		{
			name: "cut-not-told", rule: "I9", file: "cut.go",
			old: "	emit(m.events, m.opts.Events.Truncated, TruncatedEvent{",
			new: "	_ = (TruncatedEvent{",
		},
		{
			name: "cut-one-off", rule: "I8", file: "cut.go", few: true,
			old: "Offset: ts[i].rec.Cut, End",
			new: "Offset: ts[i].rec.Cut + 1, End",
		},
		{
			name: "pause-without-drain", rule: "I4", file: "perform.go",
			old: "	ends, err := m.quiet(ctx, ts)\n",
			new: "	ends, err := make([]fetcher.End, len(ts)), ctx.Err()\n",
		},
		{
			name: "gap-not-told", rule: "I9, C1.1", file: "reporter.go",
			old: "	emit(r.m.events, r.m.opts.Events.Skipped, SkippedEvent{",
			new: "	_ = (SkippedEvent{",
		},
		{
			name: "raise-dropped", rule: "I5", file: "raise.go",
			old: "	for k, err := range m.can.raiser.RaiseEpochs(ctx, raises) {\n",
			new: "	for k, err := range m.can.raiser.RaiseEpochs(ctx, raises[:0]) {\n",
		},
		{
			name: "no-raise-at-stop", rule: "I5, I6", file: "stop.go",
			old: "	return m.can.raiser.RaiseEpochs(ctx, raises)\n",
			new: "	return make([]error, len(raises))\n",
		},
		{
			// What refuses loops, and what refuses both ways at once, covers for the other;
			// so these take away what both know.
			name: "loops-of-three-unseen", rule: "C9.7", file: "coordinator/positions.go",
			old: "		a.Sources = r.Sources\n",
			new: "		a.Sources = r.Sources[:min(1, len(r.Sources))]\n",
		},
		{
			name: "active-unseen", rule: "C9.7", file: "coordinator/positions.go",
			old: "	case !done:\n",
			new: "	case !done && mirror == \"\":\n",
		},
		{
			name: "cuts-without-leave", rule: "UncleanRecovery", file: "fetcher/alignment.go",
			old: "	may := j.t.Policy.Unclean && (",
			new: "	may := true || j.t.Policy.Unclean && (",
		},
		{
			name: "stale-answer-taken", rule: "C11.9", file: "fetcher/answers.go",
			old: "		if !t.member || t.askedGen != t.gen {",
			new: "		if !t.member || t.askedGen > t.gen {",
		},
		{
			name: "trims-too-much", rule: "C1.3", file: "fetcher/results.go",
			old: "	to := t.board.LogStart.Load()\n",
			new: "	to := t.board.LogStart.Load() + 1\n",
		},
		{
			name: "away-replica-not-cut", rule: "I8", file: "transport/memory/cut.go",
			old: "			if r.cut < 0 || cut.Offset < r.cut {\n",
			new: "			if r.cut < -1 {\n",
		},
	}
}
