package mirror

import (
	"context"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// TopicResult is what an operation came to for one topic.
//
// Every operation on topics takes the name of a mirror and entries as in [Topics]
// (none: all topics of the mirror), and gives a result for each topic that is known
// to match and for each literal name, in the order of names. Its error is nil only
// when it worked for all of them. What is wanted is stored first: where the mirror
// does not run here, or ctx has ended, it is done when the mirror next runs.
// Repeating an operation is harmless.
type TopicResult struct {
	Topic string
	Err   error // nil: done, or recorded where the operation only records
}

// Start adds topics to a mirror and begins to copy them, as [Mirror.Start] does. It
// does not wait. Topics that another mirror into the same cluster is at work on, or
// names in its definition, are refused (ErrActive); where two mirrors find one topic
// by patterns, the later one's partitions fail with ErrActive before anything is
// appended.
func (c *Controller) Start(ctx context.Context, mirror string, entries ...string) ([]TopicResult, error) {
	o := &operation{c: c, op: "start", mirror: mirror, entries: entries, desired: coordinator.WantMirroring, stopped: true}
	o.refuse, o.filter = o.refuseStart, o.include
	o.perform = func(ctx context.Context, m *Mirror) error { return m.Start(ctx, o.todo...) }
	return o.run(ctx)
}

// Stop is the failover, as [Mirror.Stop] is: it returns when the topics are
// writable, or with what is left when ctx ends (the stopping goes on). The names are
// excluded from then on. It works while the source is down. While Run does not run
// it is recorded.
func (c *Controller) Stop(ctx context.Context, mirror string, entries ...string) ([]TopicResult, error) {
	o := &operation{c: c, op: "stop", mirror: mirror, entries: entries, desired: coordinator.WantStopped,
		reached: coordinator.StateStopped, stopped: true}
	o.filter = o.exclude
	o.perform = func(ctx context.Context, m *Mirror) error { return m.Stop(ctx, o.todo...) }
	return o.run(ctx)
}

// Promote is a planned Stop, as [Mirror.Promote] is: it first waits until the
// destination has all that the source has. When ctx ends before that, nothing is
// stopped and the error says what remains. It needs Run.
func (c *Controller) Promote(ctx context.Context, mirror string, entries ...string) ([]TopicResult, error) {
	if c.phase.Load() != phaseRunning {
		return nil, fault("promote", mirror, ErrNotRunning)
	}
	o := &operation{c: c, op: "promote", mirror: mirror, entries: entries, reached: coordinator.StateStopped}
	o.perform = o.promote
	results, err := o.run(ctx)
	if err == nil { // from now on discovery leaves them alone
		if _, err = c.redefine(ctx, mirror, o.exclude); err != nil {
			err = fault("promote", mirror, err)
		}
	}
	return results, err
}

// Pause stops the copying and leaves the topics mirror topics, as [Mirror.Pause]
// does; it returns when nothing more is appended. A stopped topic is refused
// (ErrStopped). While Run does not run it is recorded.
func (c *Controller) Pause(ctx context.Context, mirror string, entries ...string) ([]TopicResult, error) {
	o := &operation{c: c, op: "pause", mirror: mirror, entries: entries, desired: coordinator.WantPaused,
		reached: coordinator.StatePaused}
	o.refuse = o.refuseStopped
	o.perform = func(ctx context.Context, m *Mirror) error { return m.Pause(ctx, o.todo...) }
	return o.run(ctx)
}

// Resume goes on with paused topics, as [Mirror.Resume] does. It does not wait. A
// stopped topic is refused (ErrStopped).
func (c *Controller) Resume(ctx context.Context, mirror string, entries ...string) ([]TopicResult, error) {
	o := &operation{c: c, op: "resume", mirror: mirror, entries: entries, desired: coordinator.WantMirroring}
	o.refuse = o.refuseStopped
	o.perform = func(ctx context.Context, m *Mirror) error { return m.Resume(ctx, o.todo...) }
	return o.run(ctx)
}

// Recover tries failed partitions again at once, as [Mirror.Recover] does, and a
// mirror that is not open too. It does not wait.
func (c *Controller) Recover(ctx context.Context, mirror string, entries ...string) ([]TopicResult, error) {
	if r := c.of(mirror); r != nil {
		r.wake()
	}
	o := &operation{c: c, op: "recover", mirror: mirror, entries: entries, recover: true}
	o.perform = func(ctx context.Context, m *Mirror) error { return m.Recover(ctx, o.todo...) }
	return o.run(ctx)
}

// WaitMirrored waits until the record at an offset can no longer be lost at the
// destination, as [Mirror.WaitMirrored] does; before that it waits for the mirror to
// run here.
func (c *Controller) WaitMirrored(ctx context.Context, mirror string, p cluster.Partition, offset int64) error {
	if _, err := c.definition(ctx, mirror); err != nil {
		return fault("wait", mirror, err)
	}
	o := &operation{c: c, op: "wait", mirror: mirror}
	o.perform = func(ctx context.Context, m *Mirror) error { return m.WaitMirrored(ctx, p, offset) }
	_, err := o.whenLive(ctx)
	return err
}
