// Package memory is a Kafka cluster in a map: brokers, replicas with logs of their
// own, elections, lost records, transactions, groups, and faults on demand. It is a
// source and a destination of a mirror at once, for tests of an engine and of hosts
// that embed it. It keeps real record batches as bytes, starts no goroutine unless
// something waits, knows no time but that of package time (so it works inside a
// testing/synctest bubble), and decides nothing by chance: the same calls in the
// same order give the same logs, answers and topic ids.
//
//	source := memory.New(memory.Options{ID: "a"})
//	destination := memory.New(memory.Options{ID: "b"})
//	source.CreateTopic(cluster.NewTopic{Name: "orders", Partitions: 1})
//	source.Produce(cluster.Partition{Topic: "orders"}, memory.Values("x", "y")...)
//	m, err := mirror.New("m", source, destination, nil)
//
// # Users of a cluster
//
// A Cluster is its own first Client. Client makes further ones, which the cluster
// tells apart: give every worker (and every zombie) its own. What only tests do is
// on Cluster (Produce, Elect, StopBroker, SetMembers, ...); what a mirror does is on
// Client (the seams of fetcher, topics, offsets and verify, and ACLs).
//
// # Logs
//
// Each replica has its own log and leader epochs. A leader appends; followers copy,
// after they have cut what the leader's epochs do not know (KIP-101, KIP-595). The
// high watermark is what all in-sync replicas have. With Options.Manual a follower
// copies only in Replicate, so that a clean election can lose what was not copied,
// and a new leader may know an older high watermark, as in Kafka. Lag or StopBroker
// and then ElectUnclean make a shorter log the truth. Every election is a new leader
// epoch, which ordinary partitions note where the log ends.
//
// # Fetching
//
// Fetch checks in Kafka's order: topic id (cluster.ErrTopicReplaced), leader epoch
// (ErrLeaderEpoch), leader (ErrNotLeader; both with a hint of the leader), the end of
// Want.LastEpoch (Fetched.Diverging), the range (ErrOutOfRange). Only what is below
// the high watermark is read, in whole batches; the first of an answer may exceed
// the limits. Sessions are incremental: a partition without news is left out. Unlike
// Kafka's, a broker answers at once when only a high watermark or log start has
// changed. A session dies with its broker, and with the first error.
//
// # Appending
//
// Ends takes partitions over for its Client. What another Client appends afterwards
// fails with cluster.ErrFenced; what the same Client had under way is answered with
// ErrTimeout and never lands. A batch lands if the log ends exactly where what was
// handed over before it ends, and at its own offset; otherwise the result has
// ErrOutOfOrder and so has everything until Ends. Bytes are copied, and given back as
// soon as a run was carried out. Results are told from one goroutine, in order, before
// Ends returns. With Options.Stepped nothing is
// carried out or answered before Step (or Ends, which forgets it).
//
// Truncate and StartAt are bound to the owner of a stretch in the same way. Truncate
// cuts every replica; one that is down keeps the obligation (State shows it as Owes)
// and serves it when it starts. RaiseEpochs sets the leader epoch without electing.
//
// A stretch makes its topic read-only (ErrReadOnly for Produce, Send, DeleteRecords,
// CreatePartitions, DeleteTopic) with the first thing done for it: an append, a cut,
// a start, or Ends with Stretch.New. Ends alone only looks. Fence makes the topic an
// ordinary one; from then on Ends answers Stopped until it is asked with New. Ours is
// true while the last records of the log are the mirror's; markers and fences do not
// count.
//
// Options.Produce models what client rights can do instead: batches get the broker's
// epoch and lose their producer; only the sequence is compared, not who sends. So a
// zombie's batch can land where it belongs (the other worker then gets ErrFenced for
// its own), batches behind a foreign record land displaced (ErrDisplaced), and Ends
// reports foreign records (ErrForeignWrite with their offsets). A fence is one
// phantom record.
//
// # Faults
//
// SetFault shows every request to a function before it is made. It can lose a
// request or its answer, delay either, stop a broker, freeze a partition, or make the
// client crash before or after it. A delayed request is carried out when its time
// comes even if its caller is gone: that is how late writes of zombies are made. Close lets everything
// go that still waits. In a bubble of testing/synctest make the cluster inside of it.
package memory
