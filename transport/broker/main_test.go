package broker

import (
	"testing"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Suite{M: m}) }
