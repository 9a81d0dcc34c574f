package broker

import "os"

// both are the versions that are tried, each time where the older one goes another way.
var both = []string{"4.4.0", "3.9.1"}

// newest is the newest of them, and with MIRROR_LONG=1 all: three brokers take their time.
func newest() []string {
	if os.Getenv("MIRROR_LONG") != "" {
		return both
	}
	return both[:1]
}
