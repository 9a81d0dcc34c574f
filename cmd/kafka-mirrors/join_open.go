package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// joining is what a process holds on to that joins: a destination that is a broker, or
// what cuts for one that is not.
type joining struct {
	destination *broker.Destination
	truncater   *broker.Truncater
	files       *broker.Files // nil: the state store is used
	keeper      keeper
	listeners   []net.Listener
	tls         []*tls.Config
}

// keeper keeps who we are, and which topics are ours.
type keeper interface {
	Identities() broker.Identities
	Overrides() broker.Overrides
}

// claim takes the folder, and says who we are to the cluster to which reached is the way.
// Without a folder shared keeps that.
func (f *joinFlags) claim(reached kafka.Config, shared keeper) (*joining, broker.Config, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, cfg, err
	}
	j := &joining{keeper: shared}
	if j.tls, err = f.secure(cfg.Listeners); err != nil {
		return nil, cfg, err
	}
	if f.state != "" {
		if j.files, err = broker.OpenFiles(f.state); err != nil {
			return nil, cfg, fmt.Errorf("--join-state: %w", err)
		}
		j.keeper = j.files
	}
	cfg.Bootstrap, cfg.TLS, cfg.SASL, cfg.Dial = reached.Bootstrap, reached.TLS, reached.SASL, reached.Dial
	cfg.Identities = j.keeper.Identities()
	return j, cfg, nil
}

// listen takes the ports.
func (f *joinFlags) listen(at []broker.Listener) (all []net.Listener, err error) {
	for _, l := range at {
		one, err := net.Listen("tcp", net.JoinHostPort(f.bind, strconv.Itoa(int(l.Port))))
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, fmt.Errorf("--join-listener: %w", err)
		}
		all = append(all, one)
	}
	return all, nil
}

// open makes the destination. admin is it as a client sees it. Processes of a mirror that
// share the place of who they are stand by for each other.
func (f *joinFlags) open(mirror string, admin *kafka.Cluster, reached kafka.Config, shared keeper, logger *slog.Logger) (*joining, error) {
	j, cfg, err := f.claim(reached, shared)
	if err != nil {
		return nil, err
	}
	workers := mirror
	if j.files != nil {
		workers = ""
	}
	if j.listeners, err = f.listen(cfg.Listeners); err == nil {
		available, _ := f.availability() // claim has looked
		j.destination, err = broker.NewDestination(broker.DestinationConfig{
			Membership: cfg, Listeners: j.listeners, TLS: j.tls, Admin: admin, Overrides: j.keeper.Overrides(), Workers: workers,
			Availability: available, Logger: logger,
		})
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// openCuts makes what cuts for a mirror whose destination reached is the way to. The
// ports are taken for a cut, and tried now.
func (f *joinFlags) openCuts(reached kafka.Config, salvage cutSalvage, print func(string), logger *slog.Logger) (*joining, error) {
	if f.state == "" {
		f.state = folderOfTruncate // of this process alone: what is in its hands, another would give back
	}
	j, cfg, err := f.claim(reached, nil)
	if err != nil {
		return nil, err
	}
	tried, err := f.listen(cfg.Listeners)
	for _, l := range tried {
		l.Close()
	}
	if err == nil {
		j.truncater, err = broker.NewTruncater(broker.TruncateConfig{
			Membership: cfg, TLS: j.tls, Overrides: j.keeper.Overrides(), Salvage: salvage, Logger: logger,
			Progress: func(p cluster.Partition, step broker.TruncateStep) { print(fmt.Sprintf("%v being cut: %v", p, step)) },
		}, func() ([]net.Listener, error) { return f.listen(cfg.Listeners) })
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// check finds out whether tails could be cut.
func (j *joining) check(ctx context.Context) error {
	if j == nil || j.truncater == nil {
		return nil
	}
	if err := j.truncater.Check(ctx); err != nil {
		return fmt.Errorf("--truncation join: %w", err)
	}
	return nil
}

// Close gives back what Run has not.
func (j *joining) Close() error {
	if j == nil {
		return nil
	}
	for _, l := range j.listeners {
		l.Close() // closed already where it was served
	}
	if j.files == nil {
		return nil
	}
	return j.files.Close()
}
