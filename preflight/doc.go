// Package preflight says before a mirror starts what would go wrong later: one report of
// findings, each with what it concerns, why it matters and what to do. [Judge] is pure:
// facts in, findings out. The facts are gathered elsewhere; nothing here asks a cluster.
package preflight
