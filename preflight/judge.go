package preflight

import (
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/cluster"
)

// judge is a report in the making.
type judge struct {
	*Facts
	findings
}

// Judge says what would go wrong. It is pure, and does not keep the facts.
func Judge(f Facts) *Report {
	j := &judge{Facts: &f}
	j.clusters()
	j.versions()
	j.rights()
	j.join()
	j.selection()
	for i := range f.Topics {
		t := &f.Topics[i]
		j.conflicts(t)
		j.logs(t)
		j.replicas(t)
		j.settings(t)
	}
	j.brokers()
	return j.report(&f)
}

// side gives the cluster of a side.
func (j *judge) side(s Side) *Cluster {
	if s == Source {
		return &j.Source
	}
	return &j.Destination
}

// clusters: each can be reached, all of its brokers can, and they are two.
func (j *judge) clusters() {
	for _, s := range []Side{Source, Destination} {
		c := j.side(s)
		if c.Pinned != "" && c.ID != "" && c.ID != c.Pinned {
			j.add(Finding{Severity: Blocks, Code: "cluster-replaced", Cluster: s, What: fmt.Sprintf("cluster %s answers, and the mirror has %s on record", c.ID, c.Pinned),
				Why: "nothing of another cluster is taken for the one that was mirrored", Do: "give the addresses of the cluster on record, or make another mirror"})
		}
		switch {
		case c.Err != nil && c.Inspection == nil:
			j.add(Finding{Severity: Blocks, Code: "unreachable", Cluster: s, What: fmt.Sprintf("the cluster cannot be asked: %v", c.Err),
				Why: "nothing can be mirrored without it, and nothing else about it is checked here",
				Do:  "look at the addresses, the network, the login and the certificates of the " + string(s)})
		case c.Err != nil:
			j.unchecked(s, "the cluster's answers are not complete", c.Err)
		}
		if c.Inspection == nil {
			continue
		}
		for _, b := range c.Brokers {
			if b.Err != nil {
				j.unreachable(s, b)
			}
		}
	}
	if j.Source.ID != "" && j.Source.ID == j.Destination.ID {
		j.add(Finding{Severity: Blocks, Code: "same-cluster", What: "source and destination are one cluster, " + j.Source.ID,
			Why: "a topic cannot be mirrored onto itself", Do: "give the addresses of two clusters"})
	}
}

// unreachable: what a broker leads stands still. Of topics that are to be created it may get some.
func (j *judge) unreachable(s Side, b Broker) {
	f := Finding{Severity: Blocks, Code: "broker-unreachable", Cluster: s, Broker: fmt.Sprintf("%d at %s", b.ID, b.Address),
		What: fmt.Sprintf("the advertised address cannot be used: %v", b.Err), Do: remedy(b.Cause)}
	creates := slices.ContainsFunc(j.Topics, func(t Topic) bool { return !t.Exists })
	switch {
	case b.Leads > 0:
		f.Why = fmt.Sprintf("it leads %s of the mirror, which stand still", counted(b.Leads, "partition"))
	case s == Destination && creates:
		f.Why = "partitions of topics that are to be created may be placed on it, and stand still then"
	default:
		f.Severity, f.Why = Warns, "it leads none of the mirror's partitions now; those that it gets stand still"
	}
	j.add(f)
}

// remedy is what can be done about a broker that cannot be reached, by the cause.
func remedy(cause string) string {
	switch cause {
	case "dns":
		return "make the name resolve here, or have the broker advertise one that does (advertised.listeners)"
	case "refused", "network":
		return "open the way from here to this address, or have the broker advertise one that is reached (advertised.listeners)"
	case "timeout":
		return "look for a firewall on the way, or a listener with another security protocol at this port"
	case "tls":
		return "trust the authority of the broker's certificate, and have the certificate carry the advertised name"
	case "tls refused":
		return "give a client certificate that the broker trusts (ssl.keystore)"
	case "sasl":
		return "look at user, password and mechanism: this broker refuses the login"
	case "closed", "protocol":
		return "look whether this port speaks Kafka with the security protocol that is set"
	}
	return "look at the broker and the way to it"
}

// unchecked says that something could not be looked at.
func (j *judge) unchecked(s Side, what string, err error) {
	do := "make it answer and check again"
	if errors.Is(err, cluster.ErrAuthorization) {
		do = "allow it for the time of the check, or look by hand"
	}
	j.add(Finding{Severity: Warns, Code: "unchecked", Cluster: s, What: fmt.Sprintf("%s: %v", what, err), Why: "it may hide what goes wrong later", Do: do})
}

// join: what the destination's membership would be refused for.
func (j *judge) join() {
	for _, err := range j.Plan.JoinErrs {
		j.add(Finding{Severity: Blocks, Code: "join", Cluster: Destination, What: err.Error(),
			Why: "the process cannot become a broker of the destination", Do: "see what docs/joined.md grants and refuses; a cluster that lets nobody in is mirrored to without joining"})
	}
}

// selection: there is something to mirror.
func (j *judge) selection() {
	if j.Source.Err != nil {
		return
	}
	for _, name := range j.Missing {
		if j.Source.Inspection != nil && errors.Is(j.Source.Inspection.Topics[name].Err, cluster.ErrAuthorization) {
			j.lack(Blocks, Source, onTopic, name, Describe, "whether it is there is not told")
			continue
		}
		j.add(Finding{Severity: Warns, Code: "topic-missing", Cluster: Source, Topics: []string{name}, What: "named, and not there",
			Why: "it is mirrored once it is there", Do: "look at the spelling"})
	}
	if len(j.Topics)+len(j.Missing) == 0 {
		j.add(Finding{Severity: Warns, Code: "no-topics", Cluster: Source, What: "no topic that this user sees matches",
			Why: "nothing is mirrored until one does; topics without Describe are not seen", Do: "look at the names, and at what the user may describe"})
	}
}
