package kafka

import (
	"testing"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	kafkatest.Child("racer", racer)
	goleak.VerifyTestMain(kafkatest.Suite{M: m})
}
