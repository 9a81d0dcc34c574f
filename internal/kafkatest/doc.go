// Package kafkatest starts real Apache Kafka clusters for tests and gives those
// tests what they need around one: topics and loads, consumers that are not
// ours to compare with (Java's console consumer and kcat), a network with
// faults, and child processes that can be killed.
//
// The brokers are ordinary ones from Maven Central, run by the local Java; the
// jars are fetched once per machine (see [Start]), and an archive of their loaded
// classes is made beside them, with which a broker starts in little more than half
// of the processor time. A machine without Java or
// Maven skips these tests with one line that says so. With the environment
// variable KAFKATEST_REQUIRED set (CI) it fails instead, so that a green run
// means they ran.
//
// The network ([Network], [Proxy]) and the children ([Child], [SpawnChild])
// need no Java.
//
// Everything started here dies with the test process, a kill -9 of it
// included (on Linux).
package kafkatest
