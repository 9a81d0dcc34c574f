// Package live fills a real Kafka cluster with topics that hold everything a log can
// hold, as far as brokers let themselves be brought to it: batches of package zoo are
// written by plain, idempotent and transactional producers, then the broker's own
// cleaner, retention, clock and older message formats do the rest. A Census of the raw
// log proves that the wanted shapes are really there.
package live
