package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror/transport/broker"
	"github.com/clustermirror/mirror/transport/kafka"
)

// joinHelp is the part of the help about joining.
const joinHelp = `Joining. With --join this process becomes a broker of the destination (KRaft, 3.9 and
4.4 are tested) that holds no data and leads the mirror topics: their batches are the
source's byte for byte, transactions, gaps and leader epochs included, tails are cut
exactly, and nobody can write to them until they are stopped, also while this process
is dead. The brokers reach it at the listener between brokers, the first
--join-listener; clients at those that follow. Whoever logs in there, brokers too, does
so at a real broker, through us. The destination's user needs ClusterAction, Alter and
Describe on the cluster, and Create, Describe, Read and Alter on the topics.`

// joinFlags say whether and how to be a broker of the destination.
type joinFlags struct {
	ids         string
	listeners   []string
	bind        string
	state       string
	controllers []string
}

// inRun and inTruncate say what --join-state is for, and when it is not given.
const (
	folderOfRun = "kafka-mirrors-joined"
	inRun       = "`folder` for who we are as a broker, and which topics are ours; for one process at a time\n(default: the place of --state, which processes may share, or " + folderOfRun + " when that is memory)"
	inTruncate  = "`folder` for who we are as a broker, and which cuts are under way; for one process at a time"
)

// register: state is the folder when none is given, purpose what it is for.
func (f *joinFlags) register(c *cobra.Command, state, purpose string) {
	c.Flags().StringVar(&f.ids, "join", "", "become a broker of the destination, with the first free id of `FIRST-LAST`; none of\nthem may be a real broker's or controller's")
	c.Flags().StringArrayVar(&f.listeners, "join-listener", nil, "how brokers and clients reach us, `NAME=PROTOCOL://host:port` as the listener of that name\nhas it at real brokers; repeated for each, that between brokers first")
	c.Flags().StringVar(&f.bind, "join-bind", "", "`address` of this machine to accept at, with the ports of --join-listener (default: all)")
	c.Flags().StringVar(&f.state, "join-state", state, purpose)
	c.Flags().StringSliceVar(&f.controllers, "join-controllers", nil, "the destination's controllers, `host:port[,...]` (default: its brokers are asked)")
}

func (f *joinFlags) on() bool { return f.ids != "" }

// protocols are Kafka's numbers.
var protocols = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

// config is what the flags say of the membership, and all that is wrong with them.
func (f *joinFlags) config() (broker.Config, error) {
	var cfg broker.Config
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !f.on() {
		if len(f.listeners) > 0 || f.bind != "" || len(f.controllers) > 0 {
			bad("--join-listener, --join-bind and --join-controllers need --join")
		}
		return cfg, errors.Join(errs...)
	}
	first, last, ok := strings.Cut(f.ids, "-")
	if !ok {
		last = first
	}
	from, errFirst := strconv.ParseInt(first, 10, 32)
	to, errLast := strconv.ParseInt(last, 10, 32)
	if errFirst != nil || errLast != nil || to < from {
		bad("--join: %q is no range of broker ids like 900-902", f.ids)
	}
	cfg.IDs = broker.IDs{First: int32(from), Last: int32(to)}
	for _, text := range f.listeners {
		l, err := parseListener(text)
		if err != nil {
			bad("--join-listener: %w", err)
		}
		cfg.Listeners = append(cfg.Listeners, l)
	}
	if len(f.listeners) == 0 {
		bad("--join-listener: --join needs that between brokers at least")
	}
	cfg.Controllers = slices.Clone(f.controllers)
	return cfg, errors.Join(errs...)
}

// parseListener reads NAME=PROTOCOL://host:port; without a name it is the protocol's, as
// in Kafka's own settings.
func parseListener(text string) (broker.Listener, error) {
	name, address, named := strings.Cut(text, "=")
	if !named {
		address = text
	}
	scheme, at, ok := strings.Cut(address, "://")
	if !ok {
		return broker.Listener{}, fmt.Errorf("%q is not NAME=PROTOCOL://host:port", text)
	}
	protocol, ok := protocols[scheme]
	if !ok {
		return broker.Listener{}, fmt.Errorf("%q: %s is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", text, scheme)
	}
	if protocol == protocols["SSL"] || protocol == protocols["SASL_SSL"] {
		return broker.Listener{}, fmt.Errorf("%q: listeners with TLS cannot be served yet", text)
	}
	host, number, err := net.SplitHostPort(at)
	if err != nil || host == "" {
		return broker.Listener{}, fmt.Errorf("%q: %s is not host:port", text, at)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		return broker.Listener{}, fmt.Errorf("%q: port is not a number from 1 to 65535", text)
	}
	if !named {
		name = scheme
	}
	return broker.Listener{Name: name, Host: host, Port: uint16(port), Protocol: protocol}, nil
}

// joining is a destination that joins, and what it holds on to.
type joining struct {
	destination *broker.Destination
	files       *broker.Files // nil: the state store is used
	keeper      keeper
	listeners   []net.Listener
}

// keeper keeps who we are, and which topics are ours.
type keeper interface {
	Identities() broker.Identities
	Overrides() broker.Overrides
}

// claim takes the folder and the ports, and says who we are to the cluster to which
// reached is the way. Without a folder shared keeps that.
func (f *joinFlags) claim(reached kafka.Config, shared keeper) (*joining, broker.Config, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, cfg, err
	}
	j := &joining{keeper: shared}
	if f.state != "" {
		if j.files, err = broker.OpenFiles(f.state); err != nil {
			return nil, cfg, fmt.Errorf("--join-state: %w", err)
		}
		j.keeper = j.files
	}
	for _, l := range cfg.Listeners {
		at, err := net.Listen("tcp", net.JoinHostPort(f.bind, strconv.Itoa(int(l.Port))))
		if err != nil {
			return nil, cfg, errors.Join(fmt.Errorf("--join-listener: %w", err), j.Close())
		}
		j.listeners = append(j.listeners, at)
	}
	cfg.Bootstrap, cfg.TLS, cfg.SASL, cfg.Dial = reached.Bootstrap, reached.TLS, reached.SASL, reached.Dial
	cfg.Identities = j.keeper.Identities()
	return j, cfg, nil
}

// open makes the destination. admin is it as a client sees it.
func (f *joinFlags) open(admin *kafka.Cluster, reached kafka.Config, shared keeper, logger *slog.Logger) (*joining, error) {
	j, cfg, err := f.claim(reached, shared)
	if err != nil {
		return nil, err
	}
	j.destination, err = broker.NewDestination(broker.DestinationConfig{
		Membership: cfg, Listeners: j.listeners, Admin: admin, Overrides: j.keeper.Overrides(), Logger: logger,
	})
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
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
