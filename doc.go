// Package mirror keeps Kafka topics identical on two clusters: the same records
// at the same offsets, with the same timestamps, keys, values and headers. It is
// an engine to be embedded, after KIP-1279 (Cluster Mirroring), and needs
// nothing of the clusters but what any client may use.
//
//	source, err := kafka.New(kafka.Config{Bootstrap: []string{"a:9092"}})
//	destination, err := kafka.New(kafka.Config{Bootstrap: []string{"b:9092"}})
//	m, err := mirror.New("dr", source, destination, &mirror.Options{
//		Topics: mirror.Topics{Include: []string{"orders.*"}},
//	})
//	err = m.Run(ctx) // until ctx ends
//
// A [Mirror] is one one-way channel. Its topics are started by its options or by
// [Mirror.Start]; [Mirror.Stop] is the failover: it makes topics ordinary,
// writable ones, where consumers go on at the offsets they know. [Mirror.Status]
// shows where every partition stands, [Options.Events] tells what happens.
//
// The position of a copy is the destination's own log end, read again after
// every start and every error. Killing the process, running it twice, or losing
// a connection in the middle of a write leaves neither a hole nor a duplicate.
package mirror
