// Package bench measures what copying costs, beside what it could cost at best
// and what it costs others, in the same run on the same machine:
//
//   - mirror: this engine, embedded as a host embeds it;
//   - pipe: a plain TCP pipe of as many bytes (Read and Write, no splice), the
//     floor for anything that passes data on;
//   - loop: franz-go consuming and producing, the shortest program that copies.
//
// Each of them runs in a fresh process of its own, so that its processor time
// and its peak memory are read from getrusage, for all of its life: start,
// connecting, alignment of the partitions and the end included. Brokers, and the
// two ends of the pipe, are other processes and not counted. The clusters are
// real ones of one node each (internal/kafkatest).
//
//	go test ./bench -run Copy -v              two data sets of 256 MB, once each
//	go test ./bench -run Copy -v -full        all of them, 768 MB, medians of 3
//	go test ./bench -run Lag -v               visible there minus visible here
//	go test ./bench -run '^$' -bench Copy -benchtime 1x
//	go test ./bench -run Copy -v -profile DIR CPU profile of every mirror run
//
// Where the destination is a broker of its cluster (transport/broker) it has two
// brokers with every partition, and a cluster of its own:
//
//   - Joined: this destination beside the one that produces, both to two replicas;
//
//   - Idle: a hot partition, fed from memory as fast as its followers take it,
//     alone and beside idle partitions of the same followers. With -full also the
//     followers of a real leader, which have the same to do: what they lose beside
//     idle partitions is Kafka's part.
//
//     go test ./bench -run 'Joined|Idle' -v [-full]
//
// -set takes a regular expression of data sets; -partition, -response and -budget
// set the mirror's fetcher.Options, to compare. "read x" is how many bytes a process
// read per byte of the data set: above 1 it fetched something twice. "others" is the
// share of the machine that had nothing to do with the run: above a few percent,
// processor time too is dearer than it has to be, and only the ratios tell.
//
// "GB" is 10^9 bytes. Two columns tell processor seconds per GB: of batches as
// they are on the wire, and of uncompressed values. The bars are printed with
// their results; a test fails only where a bar is missed five times over, since
// these machines are shared.
package bench
