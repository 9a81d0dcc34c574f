package broker

import (
	"os"
	"testing"
)

var versions = []string{"4.4.0", "3.9.1"}

// both are the versions that are tried, each time where the older one goes another way;
// with -short, in runs that look for races, only the newest.
func both() []string {
	if testing.Short() {
		return versions[:1]
	}
	return versions
}

// newest is the newest of them, and with MIRROR_LONG=1 all: three brokers take their time.
func newest() []string {
	if os.Getenv("MIRROR_LONG") != "" {
		return versions
	}
	return versions[:1]
}
