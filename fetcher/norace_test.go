//go:build !race

package fetcher

const raceEnabled = false
