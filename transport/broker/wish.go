package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// wish changes what the next heartbeat says, and sends it now.
func (m *Membership) wish(change func(*wishes)) {
	m.mu.Lock()
	change(&m.wishes)
	m.mu.Unlock()
	select {
	case m.nudge <- struct{}{}:
	default:
	}
}

// await waits until ok is true of an image and of what we are now: either may be
// the last to change, and an idle cluster may write no record for long. The error
// is ctx's.
func (m *Membership) await(ctx context.Context, ok func(metalog.Image) bool) (metalog.Image, error) {
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		image := m.log.Image()
		if image.Version > 0 && ok(image) {
			return image, nil
		}
		either, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-moved:
				cancel()
			case <-either.Done():
			}
		}()
		_, _, _ = m.log.Next(either, image.Version) // the loop looks what it was
		cancel()
		<-done
		if ctx.Err() != nil {
			return image, ctx.Err()
		}
	}
}

// WaitJoined returns when the metadata log has us as a registered and unfenced
// broker. The error is ctx's.
func (m *Membership) WaitJoined(ctx context.Context) error {
	_, err := m.await(ctx, func(i metalog.Image) bool {
		b, _, ok := m.mine(i)
		return ok && !b.Fenced
	})
	return err
}

// Cordon keeps automatic placement of new partitions away from us, or lets it in;
// explicit placement is refused as well while we are cordoned. We begin cordoned.
// It returns when the metadata log has it. Clusters before 4.3 cannot:
// errors.ErrUnsupported; there strays are moved away as they come.
func (m *Membership) Cordon(ctx context.Context, on bool) error {
	if err := m.cordons(ctx); err != nil {
		return err
	}
	m.wish(func(w *wishes) { w.cordoned = on })
	_, err := m.await(ctx, func(i metalog.Image) bool {
		b, _, ok := m.mine(i)
		return ok && (len(b.Cordoned) > 0) == on
	})
	return err
}

// cordons is errors.ErrUnsupported where the controller knows no cordoned directories, or
// does not use them yet.
func (m *Membership) cordons(ctx context.Context) error {
	active, err := m.quorum.Active(ctx)
	if err != nil {
		return err
	}
	defer active.Close()
	if active.MaxVersion(int16(kmsg.BrokerHeartbeat)) < cordonVersion || m.log.Image().Feature(metadataVersion) < cordonLevel {
		return fmt.Errorf("%w: the cluster knows no cordoned directories (metadata.version 4.3 and later do)", errors.ErrUnsupported)
	}
	return nil
}

// Fence gives up all leadership at once, without a reassignment, and takes part
// again when off. It returns when the metadata log has it.
func (m *Membership) Fence(ctx context.Context, on bool) error {
	m.wish(func(w *wishes) { w.fenced = on })
	_, err := m.await(ctx, func(i metalog.Image) bool {
		b, _, ok := m.mine(i)
		return ok && b.Fenced == on
	})
	return err
}

// ErrStillOurs: partitions are still meant to be here (Config.Ours).
var ErrStillOurs = errors.New("partitions are still mirrored here")

// Leave takes us out of the cluster without a trace while Run is running: moves
// what lies here to real brokers, asks for a controlled shutdown, unregisters,
// and forgets the identity. Run returns then. Partitions that are ours have to be
// handed back before: ErrStillOurs. After an error it may be called again.
func (m *Membership) Leave(ctx context.Context) error {
	if !m.shutDown() {
		if err := m.WaitJoined(ctx); err != nil {
			return err
		}
	}
	for id, p := range m.log.Image().Partitions() {
		if m.ours(m.log.Image(), id) && slices.Contains(p.Replicas, m.Self().Broker) {
			return fmt.Errorf("%w: partition %d of topic %v", ErrStillOurs, id.Partition, id.Topic)
		}
	}
	m.mu.Lock()
	m.leave = true
	m.mu.Unlock()
	image, err := m.await(ctx, func(i metalog.Image) bool { return len(placedOn(i, m.Self().Broker)) == 0 })
	if err != nil {
		return fmt.Errorf("partitions are left on us: %v: %w", placedOn(image, m.Self().Broker), err)
	}
	m.wish(func(w *wishes) { w.shutdown = true })
	if _, err := m.await(ctx, func(metalog.Image) bool { return m.shutDown() }); err != nil {
		return fmt.Errorf("the controller does not let us go: %w", err)
	}
	if err := m.unregister(ctx); err != nil {
		return err
	}
	kept := m.keptNow()
	if _, err := m.cfg.Identities.Swap(ctx, &kept, nil); err != nil {
		return fmt.Errorf("forgetting our identity: %w", err)
	}
	m.become(func() { m.kept = Kept{} })
	m.end.Do(func() { close(m.ended) })
	return nil
}

// placedOn are the partitions that have a broker among their replicas.
func placedOn(i metalog.Image, broker int32) []metalog.PartitionID {
	var out []metalog.PartitionID
	for id, p := range i.Partitions() {
		if slices.Contains(p.Replicas, broker) {
			out = append(out, id)
		}
	}
	return out
}

// unregister returns when the metadata log does not have us any more.
func (m *Membership) unregister(ctx context.Context) error {
	c := controller{quorum: m.quorum}
	defer c.drop()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = m.Self().Broker
	resp, err := c.do(ctx, req)
	if err == nil {
		err = wire.CodeError(resp.(*kmsg.UnregisterBrokerResponse).ErrorCode)
	}
	if err != nil && !errors.Is(err, codeNotRegistered) {
		return fmt.Errorf("unregistering broker %d: %w", req.BrokerID, err)
	}
	_, err = m.await(ctx, func(i metalog.Image) bool { _, ok := i.Broker(req.BrokerID); return !ok })
	return err
}
