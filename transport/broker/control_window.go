package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
)

const (
	// maxOpening is how long we try to have all of a list uncordoned. The others are
	// cordoned again with their own next heartbeat.
	maxOpening = time.Second
	// maxClosing is how long we try to be cordoned again, also after ctx has ended.
	maxClosing = 5 * time.Second
)

// place is assign. Where ours are among the new replicas they are uncordoned for that
// request alone: one that comes too late is refused, and asked for again.
func (c *control) place(ctx context.Context, link *controller, i metalog.Image, lists map[metalog.PartitionID][]int32) (not refused, err error) {
	us := c.party()
	var ours []int32
	for _, to := range lists {
		ours = append(ours, slices.DeleteFunc(slices.Clone(to), us.real)...)
	}
	if len(ours) == 0 {
		return assign(ctx, link, i, lists)
	}
	slices.Sort(ours)
	peers := slices.DeleteFunc(slices.Compact(ours), func(id int32) bool { return id == us.Broker })
	opened := c.uncordoned(ctx, peers, func() error {
		not, err = assign(ctx, link, i, lists)
		return nil
	})
	return not, errors.Join(opened, err)
}

// uncordoned does something that places replicas on us and on others of ours, which none
// that is cordoned must have. Automatic placement may use the moment as well, so nothing is
// done in it but asking the controller: what comes here then is the guard's. One at a time,
// so that nobody's moment ends early.
func (c *control) uncordoned(ctx context.Context, peers []int32, do func() error) error {
	c.window.Lock()
	defer c.window.Unlock()
	err := c.m.cordons(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return do()
	}
	if err != nil {
		return err
	}
	ways := make(ways)
	defer ways.drop()
	for _, id := range peers { // before anything is open
		ways[id] = &controller{quorum: c.m.quorum}
		if _, err := ways[id].connect(ctx); err != nil {
			return err
		}
	}
	if err = c.uncordon(ctx, ways); err == nil {
		err = do()
	}
	c.cordon(ctx, ways)
	return err
}

// ways are connections to the controller, to speak in the name of others of ours.
type ways map[int32]*controller

func (w ways) drop() {
	for _, link := range w {
		link.drop()
	}
}

// uncordon returns when the controller has us and others uncordoned.
func (c *control) uncordon(ctx context.Context, peers ways) error {
	ctx, cancel := context.WithTimeout(ctx, maxOpening)
	defer cancel()
	c.m.wish(func(w *wishes) { w.cordoned = false })
	failed := peers.beat(ctx, c.m.log.Image(), wishes{})
	_, err := c.m.await(ctx, func(metalog.Image) bool { return c.m.Self().open })
	return errors.Join(failed, err)
}

// cordon has all cordoned again, none after another.
func (c *control) cordon(ctx context.Context, peers ways) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxClosing)
	defer cancel()
	c.m.wish(func(w *wishes) { w.cordoned = true })
	failed := peers.beat(ctx, c.m.log.Image(), wishes{cordoned: true})
	_, err := c.m.await(ctx, func(metalog.Image) bool { return !c.m.Self().open })
	if err = errors.Join(failed, err); err != nil {
		c.m.logger.Warn("placement has not been told to keep off us again: the next heartbeat does", "error", err)
	}
}

// beat sends a heartbeat in the name of each of those that are up; others it would let in.
func (w ways) beat(ctx context.Context, i metalog.Image, wanted wishes) error {
	var sending sync.WaitGroup
	failed := make(chan error, len(w))
	for id, link := range w {
		b, ok := i.Broker(id)
		if !ok || b.Fenced || b.InControlledShutdown {
			continue
		}
		sending.Go(func() { failed <- link.inTheirName(ctx, b, i.Offset-1, wanted) })
	}
	sending.Wait()
	close(failed)
	var err error
	for one := range failed {
		err = errors.Join(err, one)
	}
	return err
}
