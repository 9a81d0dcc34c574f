package memory_test

import (
	"testing"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/transport/memory"
	"github.com/clustermirror/mirror/verify"
	"go.uber.org/goleak"
)

var (
	_ mirror.Source         = (*memory.Cluster)(nil)
	_ mirror.Destination    = (*memory.Cluster)(nil)
	_ mirror.Source         = (*memory.Client)(nil)
	_ mirror.Destination    = (*memory.Client)(nil)
	_ verify.Reader         = (*memory.Client)(nil)
	_ fetcher.Starter       = (*memory.Client)(nil)
	_ fetcher.Fencer        = (*memory.Client)(nil)
	_ fetcher.EpochRaiser   = (*memory.Client)(nil)
	_ fetcher.Aborter       = (*memory.Client)(nil)
	_ fetcher.ProducerGuard = (*memory.Client)(nil)
	_ fetcher.Epochs        = (*memory.Client)(nil)
	_ fetcher.Rebuilder     = (*memory.Client)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
