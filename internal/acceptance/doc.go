// Package acceptance holds no code, only tests: what a mirror promises, watched
// on real Kafka clusters. The ordinary form takes minutes; with MIRROR_LONG=1 the
// same tests run at full size, with MIRROR_SOURCE=3.9.1 (or 2.8.2, 2.1.1) from a
// source of that release.
package acceptance
