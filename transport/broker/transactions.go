package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// seesTransactions gives cluster.ErrAuthorization when we may not describe any transactional
// id. A broker is asked for one that nobody has: it says whether we may know of it before it
// says that there is none (KafkaApis.handleDescribeTransactionsRequest).
func (m *Membership) seesTransactions(ctx context.Context) error {
	image, us := m.log.Image(), m.party()
	errs := []error{fmt.Errorf("%w: no real broker can be asked", cluster.ErrUnavailable)}
	for b := range image.Brokers() {
		if b.Fenced || us.own(b.ID) {
			continue
		}
		err := m.describeNobody(ctx, b)
		switch {
		case errors.Is(err, cluster.ErrAuthorization):
			return fmt.Errorf("our user needs Describe on TransactionalId *: %w", err)
		case err == nil:
			return nil
		}
		errs = append(errs, fmt.Errorf("broker %d: %w", b.ID, err))
	}
	return errors.Join(errs...)
}

func (m *Membership) describeNobody(ctx context.Context, b *metalog.Broker) error {
	conn, err := m.brokers.Conn(ctx, b.ID, "scan")
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{rand.Text()}
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
		if err := wire.CodeError(t.ErrorCode); errors.Is(err, cluster.ErrAuthorization) {
			return err
		}
		return nil // that there is none, or that another one would know
	}
	return errNothing
}

// warnOfTransactions says at the beginning what a stop would come to later.
func (d *Destination) warnOfTransactions(ctx context.Context) {
	if d.m.WaitJoined(ctx) != nil {
		return
	}
	if err := d.m.seesTransactions(ctx); errors.Is(err, cluster.ErrAuthorization) {
		d.cfg.Logger.Warn("a stop that a crash interrupts will not tell the source's open transactions from the cluster's own, and wait", "error", err)
	}
}
