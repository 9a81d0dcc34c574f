// Package metalog reads the metadata log of a KRaft cluster (KIP-500,
// __cluster_metadata) from outside: as an observer without a replica id, of whom
// the quorum keeps no trace. It follows the active controller, starts from a
// snapshot where the log no longer begins at 0, applies only what is committed,
// and keeps an [Image] of what a member of the cluster has to know: brokers,
// topics, partitions with all their epochs, configurations.
//
// What decides is pure: decoding ([Decode]), the image ([Image.Apply]), the part
// of the log that is fetched and not committed yet. [Reader] does the rest.
//
// The log holds secrets (SCRAM keys, delegation tokens, passwords in brokers'
// configurations). Only what is asked for is kept ([Config].Credentials), in
// types that print nothing; everything else is skipped as it is read.
package metalog
