// Package broker joins a KRaft cluster as a broker that holds no data (issue "the
// joined destination"; decisions 0010 and 0012).
//
// [Membership] registers with the active controller under an id of a range that
// was given to us, keeps the session alive, stays out of automatic placement where
// the cluster can be told so (4.3 and later), moves partitions away that land here
// all the same, and leaves without a trace. [Server] is the side that brokers and
// clients of that cluster connect to: it answers for itself, passes on what a real
// broker has to answer, and refuses the rest.
//
// Partitions come under our leadership, stay there alone, and go back to real
// brokers by what is asked of the controller (control).
//
// What the cluster is at a moment comes from its metadata log (internal/metalog);
// who decides is pure: the steps of a session, which id to take, what a stray is
// and where it goes, what a partition needs next.
package broker
