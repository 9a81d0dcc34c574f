// Package fetcher copies partitions from a source to a destination: it knows
// where each partition stands, asks the source's brokers for what follows,
// checks what arrives, and hands it to the destination.
//
// Three kinds of loop share the work, and each owns its data alone. The router
// (fetcher.go) knows which session a partition belongs to. A session
// (session.go), one per source broker, owns the trackers of its partitions. The
// tracker (tracker.go) is pure: it decides about one partition and does no I/O.
//
// The next fetch offset of a partition is the destination's log end (I3): it is
// read from the destination at every start and after every error, and between
// those it advances with what was handed over.
package fetcher
