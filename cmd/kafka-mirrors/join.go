package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror/transport/broker"
)

// joinHelp is the part of the help about joining.
const joinHelp = `Joining. With --join this process becomes a broker of the destination (KRaft, 3.9 and
4.4 are tested) that holds no data and leads the mirror topics: their batches are the
source's byte for byte, transactions, gaps and leader epochs included, tails are cut
exactly, and nobody can write to them until they are stopped, also while this process
is dead (unless --join-availability open lets real brokers take over). The brokers reach it at the listener between brokers, the first
--join-listener; clients at those that follow. Whoever logs in there, brokers too, does
so at a real broker, through us. Two such processes of one --name, with --state kafka and
ids and ports of their own, stand by for each other: one mirrors, the other takes over
when that one is silent. The destination's user needs ClusterAction, Alter and
Describe on the cluster, and Create, Describe, Read and Alter on the topics. Logins by
Kerberos (GSSAPI), and clients that show certificates, cannot be passed on: such a
listener is refused.`

// joinFlags say whether and how to be a broker of the destination.
type joinFlags struct {
	ids         string
	listeners   []string
	bind        string
	state       string
	controllers []string
	untested    bool
	available   string // of a run

	cert, key, clientCA string
	controllersConfig   string
}

// inRun and inTruncate say what --join-state is for, and when it is not given.
const (
	folderOfRun = "kafka-mirrors-joined"
	// folderOfTruncate is that of cuts, by whichever command.
	folderOfTruncate = "kafka-mirrors-truncate"
	inRun            = "`folder` for who we are as a broker, and which topics are ours; for one process at a time\n(default: the place of --state, which processes may share, or " + folderOfRun + " when that is memory;\nwith --truncation join " + folderOfTruncate + ")"
	inTruncate       = "`folder` for who we are as a broker, and which cuts are under way; for one process at a time"
)

// register: state is the folder when none is given, purpose what it is for.
func (f *joinFlags) register(c *cobra.Command, state, purpose string) {
	c.Flags().StringVar(&f.ids, "join", "", "become a broker of the destination, with the first free id of `FIRST-LAST`; none of\nthem may be a real broker's or controller's")
	c.Flags().StringArrayVar(&f.listeners, "join-listener", nil, "how brokers and clients reach us, `NAME=PROTOCOL://host:port` as the listener of that name\nhas it at real brokers; repeated for each, that between brokers first")
	c.Flags().StringVar(&f.bind, "join-bind", "", "`address` of this machine to accept at, with the ports of --join-listener (default: all)")
	c.Flags().StringVar(&f.state, "join-state", state, purpose)
	c.Flags().StringSliceVar(&f.controllers, "join-controllers", nil, "the destination's controllers, `host:port[,...]` (default: its brokers are asked)")
	c.Flags().StringVar(&f.controllersConfig, "join-controllers-config", "", "`file` with the settings of a Java client for the controllers (default: those of the\nbrokers)")
	c.Flags().StringVar(&f.cert, "join-cert", "", "PEM `file` with our certificate, for each --join-listener with SSL or SASL_SSL")
	c.Flags().StringVar(&f.key, "join-key", "", "PEM `file` with its private key (default: it is in --join-cert)")
	c.Flags().StringVar(&f.clientCA, "join-client-ca", "", "PEM `file` with the authorities of the brokers' certificates, where brokers ask each\nother for them (ssl.client.auth)")
	c.Flags().BoolVar(&f.untested, "join-untested", false, "join also a cluster that is newer than those that were tested")
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
		if len(f.listeners) > 0 || f.bind != "" || len(f.controllers) > 0 || f.untested || f.available != "" || f.cert+f.key+f.clientCA+f.controllersConfig != "" {
			bad("--join-listener, --join-bind, --join-controllers and the like need --join")
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
	cfg.Controllers, cfg.Untested = slices.Clone(f.controllers), f.untested
	if _, err := f.availability(); err != nil {
		bad("--join-availability: %w", err)
	}
	_, err := f.secure(cfg.Listeners)
	errs = append(errs, err, f.controllersAt(&cfg))
	return cfg, errors.Join(errs...)
}

func (f *joinFlags) availability() (broker.Availability, error) {
	if f.available == "" {
		return broker.Strict, nil
	}
	return broker.ParseAvailability(f.available)
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
