package coordinator_test

import (
	"testing"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return coordinator.NewMemory() })
}
