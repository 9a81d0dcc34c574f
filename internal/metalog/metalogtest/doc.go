// Package metalogtest is a quorum of controllers in a test's own process: it
// encodes metadata records, keeps a log with a high watermark, snapshots and
// elections, and serves it as a KRaft quorum does (DescribeQuorum, Fetch,
// FetchSnapshot). Other requests are answered by the test.
package metalogtest
