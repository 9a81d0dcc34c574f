// Package wire is one Kafka connection and the look-ups that go with it: dial,
// TLS, SASL and re-authentication, versions, pipelining, pooled frames, leaders
// and coordinators.
package wire
