package simulation

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// fingerprint is what a log that has not changed still has.
type fingerprint struct {
	topic      cluster.TopicID
	leader     cluster.Leader
	start, end int64
}

// check looks at every log that has changed: after each step.
func (o *oracle) check() error {
	for _, at := range clusterNames() {
		for _, p := range o.w.partitions(at) {
			st, err := o.w.clusters[at].State(p)
			if err != nil || st.Leader.Broker < 0 {
				continue
			}
			print := fingerprint{topic: st.TopicID, leader: st.Leader}
			for _, r := range st.Replicas {
				if r.Broker == st.Leader.Broker {
					print.start, print.end = r.LogStart, r.LogEnd
				}
			}
			o.mu.Lock()
			known := o.lately[place{at, p}] == print
			o.lately[place{at, p}] = print
			o.mu.Unlock()
			if !known {
				o.checkLog(at, p)
			}
		}
	}
	o.checkStill()
	return o.verdict()
}

// checkLog: every record is where it was written (I1, I4), and the leader epoch is
// above those that were mirrored (I5).
func (o *oracle) checkLog(at string, p cluster.Partition) {
	st, views, err := o.w.look(at, p)
	if err != nil {
		return
	}
	for i, v := range views {
		if i == 0 || !bytes.Equal(v.bytes, views[0].bytes) {
			o.checkCells(at, p, v)
		}
	}
	if o.w.setup.Kind != "keeps" || !st.Mirrored && !o.w.stopped(at, p) {
		return
	}
	all, err := cells(views[0].batches, 0)
	if err != nil {
		return // checkCells says so
	}
	for _, h := range views[0].batches {
		i, held := slices.BinarySearchFunc(all, h.Base(), func(c cell, offset int64) int { return cmp.Compare(c.offset, offset) })
		if held && all[i].at != at && h.LeaderEpoch() >= st.Leader.Epoch {
			o.found("I5", "%s %v: batch [%d,%d) has epoch %d, the leader's is %d", at, p, h.Base(), h.Next(), h.LeaderEpoch(), st.Leader.Epoch)
		}
	}
}

func (o *oracle) checkCells(at string, p cluster.Partition, v view) {
	last := int64(-1)
	for _, h := range v.batches {
		if h.Base() <= last {
			o.found("I4", "%s %v: batch [%d,%d) stands behind offset %d", at, p, h.Base(), h.Next(), last)
		}
		last = h.Next() - 1
	}
	all, err := cells(v.batches, 0)
	if err != nil {
		o.found("I1", "%s %v: %v", at, p, err)
		return
	}
	for _, c := range all {
		o.mu.Lock()
		home, known := o.homes[c.serial]
		o.mu.Unlock()
		switch {
		case !known || home.at != c.at:
			o.found("I1", "%s %v holds %v, which nobody wrote", at, p, c)
		case home.p != p || home.offset != c.offset || home.timestamp != c.timestamp:
			if o.w.setup.Kind != "produce" { // there it can only be detected (I4)
				o.found("I1", "%s %v holds %v, written to %v at offset %d", at, p, c, home.p, home.offset)
			}
		}
	}
}

// another reports whether a second mirror into the cluster is at work on the partition:
// what is appended then is its.
func (w *world) another(k stretch) bool {
	for _, m := range w.running() {
		if m == k.mirror || m[1:] != k.mirror[1:] {
			continue
		}
		if rec, ok := w.record(m, k.p); ok && rec.State != coordinator.StateStopped && rec.State != coordinator.StateUnknown {
			return true
		}
	}
	return false
}

// checkStill: nothing is appended to what was paused or stopped (I4).
func (o *oracle) checkStill() {
	o.mu.Lock()
	still := make(map[stretch]rest, len(o.still))
	for k, v := range o.still {
		still[k] = v
	}
	o.mu.Unlock()
	for k, r := range still {
		at := k.mirror[1:]
		st, views, err := o.w.look(at, k.p)
		if r.crowded = r.crowded || len(o.w.processes[k.mirror]) > 1; r.crowded && r.state == coordinator.StatePaused {
			o.mu.Lock()
			if _, ok := o.still[k]; ok {
				o.still[k] = r
			}
			o.mu.Unlock()
			continue
		}
		if err != nil || st.TopicID != r.topic || views[0].end <= r.end || o.w.setup.Kind == "produce" || o.w.another(k) {
			continue
		}
		added, err := cells(views[0].from(r.end), r.end)
		if err != nil {
			continue // checkCells says so
		}
		for _, c := range added {
			if c.at != at && o.stands(k, r) {
				o.found("I4", "%s %v is %s by %s at %d and has got %v since", at, k.p, r.state, k.mirror, r.end, c)
			}
		}
	}
}

// stands reports whether a partition rests as it did when it was looked at: a mirror may
// have begun meanwhile.
func (o *oracle) stands(k stretch, r rest) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, ok := o.still[k]
	return ok && now.state == r.state && now.topic == r.topic && now.end == r.end
}

// settle heals everything, and waits until all has come to rest as it should.
func (w *world) settle() error {
	if err := w.heal(); err != nil {
		return err
	}
	if err := w.stopAgain(); err != nil {
		return err
	}
	var why error
	again := time.Duration(0)
	wait := 200 * time.Millisecond
	for spent := time.Duration(0); spent < 10*time.Minute; spent += wait {
		if spent >= again {
			w.recoverAll()
			again = spent + time.Minute
		}
		time.Sleep(wait)
		if err := w.oracle.check(); err != nil {
			return err
		}
		if why = w.rest(); why == nil {
			return w.oracle.accounts()
		}
		wait = min(2*wait, 5*time.Second)
	}
	return why
}

// stopAgain is the operator who wants topics stopped and was given an error.
func (w *world) stopAgain() error {
	for _, name := range w.running() {
		if w.failed[name] && !w.closed[name] && w.setup.off("stop-again") {
			if err := w.operate(Step{Op: Stop, Mirror: name}, w.current(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// recoverAll is the operator who has seen to all that has failed.
func (w *world) recoverAll() {
	for _, name := range w.running() {
		if p := w.current(name); !w.closed[name] {
			_ = p.m.Recover(w.context())
		}
	}
}

// rest is why not everything is as it should be when nothing is wrong any more.
func (w *world) rest() error {
	for _, name := range w.running() {
		if w.closed[name] {
			continue
		}
		p := w.current(name)
		if p.ended() {
			return broken("liveness", "Run of %s has ended: %v", p.name, p.err)
		}
		topic, _ := p.m.Topic(topicName)
		if topic.Refused != "" && w.refusable(p) {
			continue
		}
		for _, part := range w.partitions(p.source()) {
			i := slices.IndexFunc(topic.Partitions, func(s mirror.PartitionStatus) bool { return s.Partition == part })
			if i < 0 && w.ended[name] {
				continue // it was stopped before it was seen
			}
			if i < 0 {
				return broken("liveness", "%s does not know %v: %s", p.name, part, topic.Refused)
			}
			if err := w.restOf(p, w.owners(p, topic.Partitions[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// owners is what the process that owns a partition says of it, if another one that has
// not ended does: two processes of a mirror may both go on, each with what it owns.
func (w *world) owners(p *process, s mirror.PartitionStatus) mirror.PartitionStatus {
	if _, mine := p.owned(s.Partition); mine {
		return s
	}
	for _, other := range w.processes[p.mirror] {
		if _, its := other.owned(s.Partition); !its || other.ended() {
			continue
		}
		topic, _ := other.m.Topic(topicName)
		for _, theirs := range topic.Partitions {
			if theirs.Partition == s.Partition {
				return theirs
			}
		}
	}
	if rec, ok := w.record(p.mirror, s.Partition); ok && rec.State == coordinator.StateStopped { // by one that has ended since
		s.State, s.Desired = rec.State, rec.Desired
	}
	return s
}

func (w *world) restOf(p *process, s mirror.PartitionStatus) error {
	want := map[coordinator.Desired]coordinator.State{
		coordinator.WantMirroring: coordinator.StateMirroring, coordinator.WantPaused: coordinator.StatePaused,
		coordinator.WantStopped: coordinator.StateStopped,
	}[s.Desired]
	switch {
	case s.State == want && want == coordinator.StateMirroring && w.loops(p, s.Partition, true):
		return broken("loop", "%s copies %v, whose records come from its destination", p.name, s.Partition)
	case s.State == want && want == coordinator.StateMirroring:
		return w.equal(p, s.Partition)
	case s.State == want:
		return nil
	case s.State == coordinator.StateFailed && want != coordinator.StateStopped && w.setup.Kind == "produce" && w.foreign(p, s.Partition):
		return nil // it is not silent, whatever it says
	case want == coordinator.StateStopped && w.setup.off("stop-deleted") && len(w.partitions(p.destination())) == 0:
		return nil
	case s.State == coordinator.StateFailed && !s.Retriable && want != coordinator.StateStopped && w.explained(p, s):
		return nil
	}
	return broken("liveness", "%s: %v is %s and should be %s: %s", p.name, s.Partition, s.State, want, s.Reason)
}

// equal: the destination's log is the source's, on every replica (I1, I2, I8).
func (w *world) equal(p *process, part cluster.Partition) error {
	_, src, err := w.look(p.source(), part)
	if err != nil {
		return broken("liveness", "source: %v", err)
	}
	_, dst, err := w.look(p.destination(), part)
	if err != nil {
		return broken("liveness", "destination: %v", err)
	}
	if w.oracle.reused(p.source(), part, src[0], dst[0]) {
		return nil
	}
	if src[0].start == src[0].end && dst[0].end <= src[0].start {
		return nil // nothing is left to be copied, and no log ends higher without a record
	}
	if dst[0].end < src[0].end && w.setup.off("idle-loss") && w.oracle.wasUnclean(p.destination(), part) {
		return nil
	}
	if dst[0].end != src[0].end {
		return broken("liveness", "%s: %v ends at %d, at the source at %d", p.name, part, dst[0].end, src[0].end)
	}
	behind := dst[0].start < src[0].start && !w.oracle.wasUnclean(p.destination(), part) // one that had not trimmed leads
	if behind && w.setup.off("idle-trim") && w.launched[p.mirror] > 1 {
		behind = false
	}
	if behind || dst[0].start > max(src[0].start, w.oracle.trimmedTo(part)) {
		return broken("I2", "%s: %v starts at %d, at the source at %d", p.name, part, dst[0].start, src[0].start)
	}
	for _, v := range dst {
		if err := w.equalLogs(p, part, src[0], v); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) equalLogs(p *process, part cluster.Partition, src, dst view) error {
	from := max(src.start, dst.start)
	if w.oracle.wasUnclean(p.source(), part) || w.oracle.wasUnclean(p.destination(), part) { // a leader that had not trimmed yet may have led since
		from = max(from, w.oracle.trimmedTo(part))
	}
	if w.setup.Kind == "produce" {
		theirs, _ := cells(src.batches, from)
		ours, err := cells(dst.batches, from)
		if err != nil || !slices.Equal(theirs, ours) {
			if w.oracle.wasUnclean(p.destination(), part) && w.foreign(p, part) && src.end == dst.end {
				return nil // lost, and filled with exactly as much by others: the next batch finds it
			}
			return broken("I2", "%s: %v holds %v, the source %v (%v)", p.name, part, ours, theirs, err)
		}
		return nil
	}
	theirs, ours := src.from(from), dst.from(from)
	if len(theirs) != len(ours) {
		return broken("I2", "%s: %v on broker %d has %d batches from %d on, the source %d", p.name, part, dst.broker, len(ours), from, len(theirs))
	}
	for i := range theirs {
		if !same(theirs[i], ours[i], w.setup.Kind == "keeps") {
			return broken("I2", "%s: %v on broker %d has another batch at %d than the source", p.name, part, dst.broker, theirs[i].Base())
		}
	}
	return nil
}

// refusable: a topic that is larger at the destination is refused, and so is one that
// the source has not got.
func (w *world) refusable(p *process) bool {
	return len(w.partitions(p.destination())) > len(w.partitions(p.source()))
}

// accounts: every range that was cut or left out was told of, and counted (I9).
func (o *oracle) accounts() error {
	o.mu.Lock()
	cuts, gaps := slices.Clone(o.cuts), slices.Clone(o.gaps)
	o.mu.Unlock()
	for _, r := range cuts {
		if !r.p.isDead() && !r.p.has(r.p.told.truncated, r.part, r.span) {
			return broken("I9", "%s has cut %v of %v and not told", r.p.name, r.span, r.part)
		}
	}
	for _, r := range gaps {
		// What the source lacks as well was told by the mirror into it.
		if told := o.w.skippedInto(r.p.source(), r.part); !r.p.isDead() && !r.p.has(r.p.told.skipped, r.part, r.span, told...) {
			return broken("I9", "%s has left out %v of %v and not told", r.p.name, r.span, r.part)
		}
	}
	return nil
}

// skippedInto is what the mirrors into a cluster have told that they left out there.
func (w *world) skippedInto(at string, part cluster.Partition) (all []cluster.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.byName {
		if p.destination() == at {
			p.told.mu.Lock()
			all = append(all, p.told.skipped[part]...)
			p.told.mu.Unlock()
		}
	}
	return all
}

// has reports whether a range was told of, by this process or by others.
func (p *process) has(told map[cluster.Partition][]cluster.Span, part cluster.Partition, span cluster.Span, others ...cluster.Span) bool {
	p.told.mu.Lock()
	defer p.told.mu.Unlock()
	all := append(slices.Clone(told[part]), others...) // several may tell of it together
	slices.SortFunc(all, func(a, b cluster.Span) int { return int(a.From - b.From) })
	for _, s := range all {
		if s.From <= span.From {
			span.From = max(span.From, s.To)
		}
	}
	return span.Len() == 0
}
