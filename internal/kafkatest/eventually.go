package kafkatest

import (
	"context"
	"testing"
	"time"
)

// Eventually calls f every 20 ms until it returns nil, and fails the test with
// f's last error when that does not happen in time. Each call gets a context
// that ends with the time.
func Eventually(t testing.TB, within time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %v", within, err)
		}
	}
}
