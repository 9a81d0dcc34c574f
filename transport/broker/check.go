package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// ErrNoControllers: the controllers cannot be reached from here, as with managed
// services, which let nobody in. Such a cluster takes package transport/kafka.
var ErrNoControllers = errors.New("the cluster's controllers cannot be reached")

// ErrNotKRaft: the cluster is one of ZooKeeper's; only a KRaft cluster can be
// joined.
var ErrNotKRaft = metalog.ErrNotKRaft

// startTimeout is how long the first image of the metadata log may take.
const startTimeout = time.Minute

// The metadata.versions that are tested: 3.9-IV0 to 4.4-IV2.
const oldestLevel, newestLevel = 21, 33

const metadataVersion = "metadata.version"

// begin waits for the first image and looks whether we may and can join.
func (m *Membership) begin(ctx context.Context) error {
	image, err := m.first(ctx)
	if err != nil {
		return err
	}
	for _, check := range m.checks(ctx, image) {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// first waits for the first image of the metadata log.
func (m *Membership) first(ctx context.Context) (metalog.Image, error) {
	bounded, cancel := context.WithTimeout(ctx, m.starting)
	defer cancel()
	image, err := m.log.Wait(bounded, func(metalog.Image) bool { return true })
	if err != nil && ctx.Err() != nil {
		return image, ctx.Err()
	}
	if err != nil {
		return image, m.unreachable(ctx)
	}
	return image, nil
}

// checks say each for itself why the cluster cannot be joined.
func (m *Membership) checks(ctx context.Context, image metalog.Image) []func() error {
	return []func() error{
		func() error { return m.checkVersion(image) },
		func() error { return checkListeners(image, m.cfg.Listeners, m.cfg.IDs) },
		func() error { return m.checkPermissions(ctx) },
		func() error { return m.checkRelay(ctx, image) },
	}
}

// checkVersion refuses clusters that nobody has tried. What brokers can do counts as well
// as what is in use: newer ones act otherwise at an old level too.
func (m *Membership) checkVersion(image metalog.Image) error {
	level := image.Feature(metadataVersion)
	if level < oldestLevel {
		return fmt.Errorf("%w: metadata.version is at level %d, joining is tested from %d (3.9-IV0) on",
			errors.ErrUnsupported, level, oldestLevel)
	}
	can := level
	for b := range image.Brokers() {
		for _, f := range b.Features {
			if f.Name == metadataVersion {
				can = max(can, f.Max)
			}
		}
	}
	switch {
	case can <= newestLevel:
		return nil
	case m.cfg.Untested:
		m.logger.Warn("the cluster is newer than any that was tested", metadataVersion, level, "brokers have up to", can, "tested up to", newestLevel)
		return nil
	}
	return fmt.Errorf("%w: metadata.version is at level %d, and brokers have up to %d; joining is tested up to %d (4.4-IV2), and Untested (--join-untested) tries it all the same",
		errors.ErrUnsupported, level, can, newestLevel)
}

// unreachable says why there is no image.
func (m *Membership) unreachable(ctx context.Context) error {
	active, err := m.quorum.Active(ctx)
	if err == nil {
		active.Close()
		return fmt.Errorf("%w: the metadata log was not read within %v", cluster.ErrTimeout, m.starting)
	}
	return fmt.Errorf("%w (a managed service? use the produce destination): %w", ErrNoControllers, err)
}

// checkListeners compares ours with those of the real brokers: a name that no real
// broker has would never be asked for, and one with another protocol cannot be
// spoken to.
func checkListeners(image metalog.Image, ours []Listener, ids IDs) error {
	var errs []error
	for _, l := range ours {
		known, fits := false, false
		for b := range image.Brokers() {
			if ids.First <= b.ID && b.ID <= ids.Last {
				continue
			}
			for _, theirs := range b.Listeners {
				known = known || theirs.Name == l.Name
				fits = fits || theirs.Name == l.Name && theirs.Protocol == l.Protocol
			}
		}
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("listener %q: no broker of the cluster has one of that name", l.Name))
		case !fits:
			errs = append(errs, fmt.Errorf("listener %q: the cluster's brokers have another security protocol than %d there", l.Name, l.Protocol))
		}
	}
	return errors.Join(errs...)
}

// The operations of an ACL on the cluster, as bits of DescribeCluster's answer.
var needed = []struct {
	name string
	bit  uint
}{{"Describe", 8}, {"Alter", 7}, {"ClusterAction", 9}}

// lacking names the permissions that the bits do not have. It is pure.
func lacking(bits int32) []string {
	var out []string
	for _, n := range needed {
		if bits&(1<<n.bit) == 0 {
			out = append(out, n.name)
		}
	}
	return out
}

// named says which permissions are lacking when something was not permitted: without
// ClusterAction not even the metadata log is given.
func (m *Membership) named(ctx context.Context, err error) error {
	if !errors.Is(err, cluster.ErrAuthorization) {
		return err
	}
	if lacks := m.checkPermissions(ctx); errors.Is(lacks, cluster.ErrAuthorization) {
		return lacks
	}
	return err
}

func (m *Membership) checkPermissions(ctx context.Context) error {
	conn, err := m.brokers.Any(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := conn.Do(ctx, req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.DescribeClusterResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return fmt.Errorf("DescribeCluster: %w", err)
	}
	if missing := lacking(answer.ClusterAuthorizedOperations); len(missing) > 0 {
		return fmt.Errorf("%w: this user lacks on the cluster: %s (kafka-acls.sh --add --operation %s --cluster)", cluster.ErrAuthorization, strings.Join(missing, ", "), strings.Join(missing, " --operation "))
	}
	return nil
}
