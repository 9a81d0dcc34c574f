package simulation

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/memory"
)

// patience is how long an operator waits for what was asked for.
const patience = 20 * time.Second

// act carries a step out. What clusters and mirrors refuse is no error: a random
// schedule asks for much that cannot be. An error is a promise that was broken.
func (w *world) act(s Step) error {
	if s.At != "" {
		if w.clusters[s.At] == nil {
			return nil
		}
		return w.actOnCluster(s)
	}
	switch s.Op {
	case Advance:
		time.Sleep(s.For)
		return nil
	case Pass:
		synctest.Wait()
		return nil
	case Settle:
		return w.settle()
	}
	if w.clusters[s.Mirror[:1]] == nil || w.clusters[s.Mirror[1:]] == nil {
		return nil
	}
	return w.actOnMirror(s)
}

func (w *world) actOnCluster(s Step) error {
	c, p := w.clusters[s.At], cluster.Partition{Topic: topicName, Partition: s.P}
	switch s.Op {
	case Produce:
		return w.produce(s, p)
	case Begin, Commit, Abort:
		return w.transact(s, p)
	case Elect:
		_ = c.Elect(p, s.Broker)
	case Lag:
		if st, err := c.State(p); err == nil && st.Leader.Broker >= 0 { // else nobody would be left to lead
			_ = c.Lag(p, s.Broker, true)
		}
	case Unlag:
		_ = c.Lag(p, s.Broker, false)
	case Unclean:
		_ = c.ElectUnclean(p, s.Broker)
		w.oracle.unclean(s.At, p)
	case Down:
		c.StopBroker(s.Broker)
	case Up:
		c.StartBroker(s.Broker)
	case Freeze:
		c.Freeze(p)
	case Thaw:
		c.Thaw(p)
	case Trim:
		if err := c.DeleteRecords(p, s.N); err == nil {
			w.oracle.trimmed(s.At, p, s.N)
		}
	case Expand:
		_ = c.CreatePartitions(topicName, int(s.N))
	case Delete, Recreate:
		if err := c.DeleteTopic(topicName); err == nil && s.Op == Recreate {
			_ = w.create(s.At)
		}
	case Dump:
		w.dump(s)
	case Group:
		_ = c.CommitAs("g", cluster.Committed{Partition: p, Offset: s.N})
	case Storeless:
		w.mu.Lock()
		w.mute[s.At] = time.Now().Add(s.For)
		w.mu.Unlock()
	}
	return nil
}

// produce writes records that are never written again: each has a number.
func (w *world) produce(s Step, p cluster.Partition) error {
	if w.early(s.At, p) {
		return nil
	}
	size := max(s.Size, 1)
	for left := max(s.N, 1); left > 0; left -= size {
		guarded := w.guards(s.At, p)
		base, err := w.clusters[s.At].Produce(p, w.fresh(s.At, min(size, left))...)
		if err == nil {
			err = w.oracle.produced(s.At, p, base, guarded)
		} else if errors.Is(err, memory.ErrReadOnly) {
			return nil
		}
		if isBroken(err) {
			return err
		}
	}
	return nil
}

// fresh makes records that say where they come from and which they are.
func (w *world) fresh(at string, n int64) []memory.Record {
	rs := make([]memory.Record, n)
	for i := range rs {
		w.serial++
		rs[i] = memory.Record{Key: []byte(at), Value: fmt.Appendf(nil, "%d", w.serial)}
	}
	return rs
}

// guarding: a mirror has appended to the partition and not handed it back.
func (w *world) guarding(mirror string, p cluster.Partition) (coordinator.Record, bool) {
	rec, ok := w.record(mirror, p)
	return rec, ok && rec.Appended && rec.Aligned && !rec.HasPosition
}

// guards are the mirrors into a cluster of which a partition is a mirror topic's.
func (w *world) guards(at string, p cluster.Partition) (mirrors []string) {
	for _, from := range clusterNames() {
		if _, ok := w.guarding(from+at, p); ok {
			mirrors = append(mirrors, from+at)
		}
	}
	return mirrors
}

// early: a mirror into the cluster is at work on the partition, though the cluster may
// not know yet that users have to be kept from writing there.
func (w *world) early(at string, p cluster.Partition) bool {
	if !w.setup.off("early-writes") || w.setup.Kind == "produce" {
		return false
	}
	if st, err := w.clusters[at].State(p); err == nil && st.Mirrored {
		return false // it knows, and refuses or takes note
	}
	for _, from := range clusterNames() {
		if w.atWork(from+at, p) {
			return true
		}
	}
	return false
}

func (w *world) transact(s Step, p cluster.Partition) error {
	if w.early(s.At, p) {
		return nil
	}
	id := transaction{s.At, s.N}
	pr := w.txns[id]
	switch {
	case s.Op == Begin && pr == nil:
		pr = w.clusters[s.At].Producer()
		pr.Begin()
		w.txns[id] = pr
		fallthrough
	case s.Op == Begin:
		guarded := w.guards(s.At, p)
		base, err := pr.Send(p, w.fresh(s.At, max(s.Size, 1))...)
		if err != nil {
			return nil
		}
		return w.oracle.produced(s.At, p, base, guarded)
	case pr == nil:
		return nil
	}
	end := pr.Commit
	if s.Op == Abort {
		end = pr.Abort
	}
	if end() == nil {
		delete(w.txns, id)
	}
	return nil
}

func (w *world) actOnMirror(s Step) error {
	p := w.current(s.Mirror)
	switch s.Op {
	case Start, Run, Takeover:
		return w.begin(s, p)
	}
	if p == nil {
		return nil
	}
	switch s.Op {
	case Stop, Promote, Pause, Resume, Recover:
		return w.operate(s, p)
	case Close:
		w.closed[s.Mirror] = true
		return p.end()
	case Crash:
		if s.N > 0 {
			p.crashAt(s.N, s.Call, s.Size > 0)
		} else {
			p.crash()
		}
	case Suspend:
		p.suspend()
	case Wake:
		for _, each := range w.processes[s.Mirror] {
			each.wake()
		}
	case Status:
		w.status(s, p)
	case Lose, LoseReply, Late, LateReply:
		p.arm(armed{call: s.Call, left: max(s.N, 1), kind: s.Op, wait: max(s.For, time.Millisecond)})
	}
	return nil
}

// begin has a process run. The topic is started only where that is asked for.
func (w *world) begin(s Step, p *process) (err error) {
	if p == nil && s.Op != Start {
		return nil
	}
	if p == nil || p.isDead() || p.ended() || s.Op == Takeover {
		if p, err = w.launch(s.Mirror); err != nil {
			return err
		}
	}
	w.closed[s.Mirror] = false
	if s.Op == Start {
		return w.operate(s, p)
	}
	return nil
}

// operate asks a mirror for something, and sees to it that the answer comes in
// time and is true.
func (w *world) operate(s Step, p *process) error {
	limit := patience
	switch s.Op {
	case Start:
		w.ended[s.Mirror] = false
	case Stop, Promote:
		w.ended[s.Mirror] = true
	}
	if s.For > 0 {
		limit = s.For
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	call := map[Op]func(context.Context, ...string) error{
		Start: p.m.Start, Stop: p.m.Stop, Promote: p.m.Promote, Pause: p.m.Pause, Resume: p.m.Resume, Recover: p.m.Recover,
	}[s.Op]
	known, knows := p.m.Topic(topicName)
	answer := make(chan error, 1)
	go func() { answer <- call(ctx, topicName) }()
	late := time.NewTimer(limit + 10*time.Second)
	defer late.Stop()
	select {
	case err := <-answer:
		w.failed[s.Mirror] = err != nil && (s.Op == Stop || s.Op == Promote)
		if err != nil || p.isDead() || !knows && s.Op == Pause && w.setup.off("pause-unsynced") {
			return nil
		}
		return w.promised(s, p, len(known.Partitions))
	case <-late.C:
		return broken("liveness", "%s of %s does not answer ten seconds after its context ended", s.Op, p.name)
	}
}

// promised checks what an operation says when it returns nil, of so many partitions;
// of none when the process knew none yet.
func (w *world) promised(s Step, p *process, known int) error {
	state := map[Op]coordinator.State{Stop: coordinator.StateStopped, Promote: coordinator.StateStopped, Pause: coordinator.StatePaused}[s.Op]
	if state == "" || w.current(s.Mirror) != p {
		return nil
	}
	for _, part := range w.partitions(p.destination()) {
		rec, ok := w.record(s.Mirror, part)
		if !ok || known > 0 && int(part.Partition) >= known { // it has just been added
			continue
		}
		if rec.State != state {
			return broken("I6", "%s of %s returned nil and %v is %s", s.Op, p.name, part, rec.State)
		}
		st, err := w.clusters[p.destination()].State(part)
		if w.othersAt(p, part) {
			continue // it is theirs by now
		}
		if state == coordinator.StateStopped && rec.Appended && err == nil && st.Mirrored && w.setup.Kind != "produce" {
			return broken("I6", "%s of %s returned nil and %v is not writable", s.Op, p.name, part)
		}
	}
	return nil
}

// violation is a promise that was broken.
type violation struct{ rule, text string }

func (v *violation) Error() string { return v.rule + ": " + v.text }

func broken(rule, format string, args ...any) error {
	return &violation{rule, fmt.Sprintf(format, args...)}
}

func isBroken(err error) bool {
	var v *violation
	return errors.As(err, &v)
}
